//! Machine code as text: an instruction a line, with the constants that it reads.

use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter, MemorySize};

/// The instructions from `entry` on of bytes that begin with constants. Addresses are counted from the first constant.
pub fn listing(bytes: &[u8], entry: usize) -> String {
    let mut text = String::new();
    let mut formatter = IntelFormatter::new();
    // Aims of jumps are written like the addresses in front of lines.
    formatter.options_mut().set_branch_leading_zeros(false);
    for instruction in Decoder::with_ip(64, &bytes[entry..], entry as u64, DecoderOptions::NONE).iter() {
        text.push_str(&format!("{:>6} ", address(instruction.ip())));
        formatter.format(&instruction, &mut text);
        if let Some(constant) = constant(&instruction, &bytes[..entry]) {
            text.push_str("  ; ");
            text.push_str(&constant);
        }
        text.push('\n');
    }
    text
}

/// An address as instructions have it: in hexadecimal, with a digit first.
fn address(at: u64) -> String {
    let digits = format!("{at:X}h");
    if digits.starts_with(|first: char| first.is_ascii_digit()) { digits } else { format!("0{digits}") }
}

/// What an instruction reads of the constants: one number where all are equal, otherwise each.
fn constant(instruction: &Instruction, constants: &[u8]) -> Option<String> {
    if !instruction.is_ip_rel_memory_operand() {
        return None;
    }
    let size = instruction.memory_size();
    let info = size.info();
    let at = usize::try_from(instruction.ip_rel_memory_address()).ok()?;
    let read = constants.get(at..at.checked_add(info.size().max(1))?)?;
    let numbers: Vec<String> =
        read.chunks(info.element_size().max(1)).map(|bits| number(size.element_type(), bits)).collect();
    match numbers.split_first()? {
        (first, rest) if rest.iter().all(|other| other == first) => Some(first.clone()),
        _ => Some(numbers.join(", ")),
    }
}

/// A number with its bits: moves and masks of floats are told as floats, whatever is meant by them.
fn number(ty: MemorySize, bits: &[u8]) -> String {
    let mut wide = [0; 8];
    let count = bits.len().min(8);
    wide[..count].copy_from_slice(&bits[..count]);
    let word = u64::from_le_bytes(wide);
    let value = match ty {
        MemorySize::Float32 => format!("{:?}", f32::from_bits(word as u32)),
        MemorySize::Float64 => format!("{:?}", f64::from_bits(word)),
        // As signed ones: a mask is −1.
        _ => format!("{}", (word << (64 - 8 * count) as u32).cast_signed() >> (64 - 8 * count)),
    };
    format!("{value} ({word:0width$X}h)", width = 2 * count)
}
