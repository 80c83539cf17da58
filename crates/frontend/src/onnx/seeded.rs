//! Tensors without data: a seed and two bounds instead of bytes, for models of which only the structure matters.
//!
//! Such a tensor has external data at the location `seeded:SEED`, which no file can have, and the keys `low` and
//! `high`; see `docs/structure-only-models.md`.

use std::str::FromStr;

use fuseline::error::{Error, Result};
use fuseline::tensor::Seeded;

use super::external::value_of;
use super::schema::StringStringEntryProto;

/// What a location begins with that is a seed.
const SCHEME: &str = "seeded:";

/// How the elements of a tensor with these entries of `external_data` are drawn; nothing if they lie in a file.
pub fn seeded(entries: &[StringStringEntryProto]) -> Result<Option<Seeded>> {
    let Some(seed) = value_of(entries, "location")?.and_then(|location| location.strip_prefix(SCHEME)) else {
        return Ok(None);
    };
    let bound = |key: &str| match value_of(entries, key)? {
        Some(text) => number::<f64>(key, text),
        None => Err(Error::invalid(format!("seeded data without {key}"))),
    };
    Ok(Some(Seeded { seed: number("seed", seed)?, low: bound("low")?, high: bound("high")? }))
}

fn number<T: FromStr>(what: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::invalid(format!("seeded data with the {what} \"{}\"", text.escape_debug())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: &[(&str, &str)]) -> Result<Option<Seeded>> {
        let entry = |(key, value): &(&str, &str)| StringStringEntryProto { key: (*key).into(), value: (*value).into() };
        seeded(&entries.iter().map(entry).collect::<Vec<_>>())
    }

    #[test]
    fn a_seed_and_two_bounds_are_read() {
        let good =
            read(&[("low", "-0.5"), ("location", "seeded:18446744073709551615"), ("high", "1e-3"), ("note", "")]);
        assert_eq!(good.unwrap(), Some(Seeded { seed: u64::MAX, low: -0.5, high: 1e-3 }));
        assert_eq!(read(&[("location", "weights.bin")]).unwrap(), None);
        assert_eq!(read(&[]).unwrap(), None);
    }

    #[test]
    fn what_is_missing_or_no_number_is_refused() {
        for entries in [
            &[("location", "seeded:1")][..],
            &[("location", "seeded:1"), ("low", "0")],
            &[("location", "seeded:1"), ("low", "0"), ("high", "one")],
            &[("location", "seeded:1"), ("low", "0"), ("high", "1"), ("high", "1")],
            &[("location", "seeded:-1"), ("low", "0"), ("high", "1")],
            &[("location", "seeded:"), ("low", "0"), ("high", "1")],
            &[("location", "seeded:18446744073709551616"), ("low", "0"), ("high", "1")],
        ] {
            assert!(read(entries).is_err(), "{entries:?}");
        }
    }
}
