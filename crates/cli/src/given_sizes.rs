//! The sizes that somebody gives on the command line, as a model or a kernel has them.

use fuseline::error::Error;
use indexmap::IndexSet;

use crate::arguments::SizeBinding;
use crate::failure::{Failure, Outcome};

/// Sizes with their names: each must be one of the free ones of `owner`. A number without a name is another one for the name before it, or for
/// the only size that is free.
pub fn named(given: &[SizeBinding], free: &[String], owner: &str) -> Outcome<Vec<(String, i64)>> {
    let mut named: Vec<(String, i64)> = Vec::new();
    for SizeBinding { name, size } in given {
        let name = match (name, named.last(), free) {
            (Some(name), ..) => name.clone(),
            (None, Some((before, _)), _) => before.clone(),
            (None, None, [only]) => only.clone(),
            (None, None, free) => {
                let error = Error::invalid(format!("which size is {size}?")).at("--sizes");
                return Err(Failure::with_help(error, missing(free, owner)));
            }
        };
        if !free.contains(&name) {
            let error = Error::invalid(format!("the {owner} has no free size called \"{name}\"")).at("--sizes");
            return Err(Failure::with_help(error, missing(free, owner)));
        }
        named.push((name, *size));
    }
    Ok(named)
}

/// What can be given.
fn missing(free: &[String], owner: &str) -> String {
    match free {
        [] => format!("all sizes of the {owner} are fixed: leave --sizes out"),
        [only] => format!("its free size is {only}: --sizes {only}=128"),
        free => format!("its free sizes are {}: --sizes {}=128", free.join(", "), free.join("=128,")),
    }
}

/// Sizes for one run: each has one number.
pub fn once(named: Vec<(String, i64)>) -> Outcome<Vec<(String, i64)>> {
    for (k, (name, size)) in named.iter().enumerate() {
        if let Some((_, before)) = named[..k].iter().find(|(other, before)| other == name && before != size) {
            let error = Error::invalid(format!("the size {name} is given twice, as {before} and as {size}"));
            let help = "give one of them; `fuseline bench` takes several, one after another";
            return Err(Failure::with_help(error.at("--sizes"), help));
        }
    }
    Ok(named)
}

/// Sizes for several runs, one after another: one size may have several numbers, all others have one.
pub fn several(named: Vec<(String, i64)>) -> Outcome<Vec<Vec<(String, i64)>>> {
    let numbers = |name: &str| -> Vec<i64> {
        let all: IndexSet<i64> = named.iter().filter(|(other, _)| other == name).map(|(_, size)| *size).collect();
        all.into_iter().collect()
    };
    let Some(first) = named.iter().map(|(name, _)| name).find(|name| numbers(name).len() > 1) else {
        return Ok(vec![named]);
    };
    if let Some((other, _)) = named.iter().find(|(name, _)| name != first && numbers(name).len() > 1) {
        let error = Error::invalid(format!("both {first} and {other} have several numbers")).at("--sizes");
        return Err(Failure::with_help(
            error,
            "give several numbers to one size, and call the command again for the other",
        ));
    }
    let rest: Vec<(String, i64)> = named.iter().filter(|(name, _)| name != first).cloned().collect();
    let with = |size: i64| std::iter::once((first.clone(), size)).chain(rest.clone()).collect();
    Ok(numbers(first).into_iter().map(with).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, free: &[&str]) -> Outcome<Vec<(String, i64)>> {
        let given: Vec<SizeBinding> = text.split(',').map(|part| part.parse().unwrap()).collect();
        let free: Vec<String> = free.iter().map(ToString::to_string).collect();
        named(&given, &free, "model")
    }

    fn pairs(list: &[(&str, i64)]) -> Vec<(String, i64)> {
        list.iter().map(|(name, size)| (name.to_string(), *size)).collect()
    }

    #[test]
    fn numbers_belong_to_the_name_before_or_to_the_only_size() {
        assert_eq!(read("1M,10M", &["n"]).unwrap(), pairs(&[("n", 1_000_000), ("n", 10_000_000)]));
        assert_eq!(read("a=1,b=2,3", &["a", "b"]).unwrap(), pairs(&[("a", 1), ("b", 2), ("b", 3)]));
        let refused = |text: &str, free: &[&str]| format!("{:?}", read(text, free).unwrap_err());
        assert!(refused("7", &["a", "b"]).contains("which size is 7?"));
        assert!(refused("7", &["a", "b"]).contains("--sizes a=128,b=128"));
        assert!(refused("7", &[]).contains("are fixed"));
        assert!(refused("c=7", &["a"]).contains("no free size called"));
    }

    #[test]
    fn one_size_may_have_several_numbers() {
        let given = |list: &[(&str, i64)]| several(pairs(list));
        assert_eq!(given(&[("n", 1), ("n", 1)]).unwrap().len(), 1);
        let runs = given(&[("m", 5), ("n", 1), ("n", 2), ("n", 1), ("n", 3)]).unwrap();
        assert_eq!(runs, [1, 2, 3].map(|n| pairs(&[("n", n), ("m", 5)])));
        assert!(given(&[("m", 5), ("n", 1), ("n", 2), ("m", 6)]).is_err());
        assert_eq!(given(&[]).unwrap(), [Vec::new()]);
        assert!(once(pairs(&[("n", 1), ("n", 1)])).is_ok() && once(pairs(&[("n", 1), ("n", 2)])).is_err());
    }
}
