//! Names of functions that C++ leaves free.

use fuseline::error::Result;
use fuseline::ops::Scalar;
use fuseline::tile::Kernel;

use super::prelude::mentions;
use super::{Options, print};

/// Words of C++ that name nothing else.
const KEYWORDS: &str = "\
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class \
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype \
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline \
    int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register \
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template \
    this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t \
    while xor xor_eq";

/// What every text for CUDA has, whether it asks or not; functions of numbers come besides.
const ALWAYS_THERE: &[&str] = &["main", "assert", "free", "malloc", "memcpy", "memset", "printf", "clock", "Unsigned"];

/// The name that is asked for, or a longer one where C++, CUDA or the text of the kernel uses that for something else.
pub fn free_name(kernel: &Kernel, options: &Options) -> Result<String> {
    let name = options.name.as_str();
    let printed = print(kernel, &Options { name: STAND_IN.to_owned(), ..options.clone() })?;
    // In f32, functions of numbers end in f.
    let is_function =
        || [Some(name), name.strip_suffix('f')].into_iter().flatten().any(|n| Scalar::from_name(n).is_some());
    let is_taken = KEYWORDS.split(' ').any(|word| word == name)
        || ALWAYS_THERE.contains(&name)
        || is_function()
        || [&printed.head, &printed.functions].into_iter().any(|text| mentions(text, name));
    Ok(if is_taken { format!("{name}_kernel") } else { name.to_owned() })
}

/// A name that no text has.
const STAND_IN: &str = "fuseline_stand_in";
