//! Numbers for people.

/// A number with a decimal prefix and three significant digits: `999`, `1.23 k`, `45.6 M`.
pub fn count(n: f64) -> String {
    const PREFIXES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let mut scaled = n;
    let mut prefix = 0;
    // 999.5 k would be written as 1000 k.
    while scaled.abs() >= if prefix == 0 { 1000.0 } else { 999.5 } && prefix + 1 < PREFIXES.len() {
        scaled /= 1000.0;
        prefix += 1;
    }
    match prefix {
        0 if n.fract() == 0.0 => format!("{}", n + 0.0),
        0 => significant(n),
        _ => format!("{} {}", significant(scaled), PREFIXES[prefix]),
    }
}

/// So many of something: `1 plan`, `2 plans`.
pub fn several(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// A number of bytes.
pub fn bytes(n: f64) -> String {
    let text = count(n);
    if text.contains(' ') { format!("{text}B") } else { format!("{text} B") }
}

/// Three significant digits.
pub fn significant(x: f64) -> String {
    // The sum of nothing is −0.
    let x = x + 0.0;
    match x.abs() {
        a if a >= 1e9 => format!("{x:.2e}"),
        a if a >= 99.95 => format!("{x:.0}"),
        a if a >= 9.995 => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_sign() {
        let nothing: f64 = std::iter::empty::<f64>().sum();
        assert_eq!([significant(nothing), significant(-0.0)], ["0.00", "0.00"]);
        assert_eq!(bytes(nothing), "0 B");
    }

    #[test]
    fn three_digits_are_kept() {
        assert_eq!(count(0.0), "0");
        assert_eq!(count(999.0), "999");
        assert_eq!(count(1000.0), "1.00 k");
        assert_eq!(count(999_600.0), "1.00 M");
        assert_eq!(count(45_678_901.0), "45.7 M");
        assert_eq!(bytes(12.0), "12 B");
        assert_eq!(bytes(4e6), "4.00 MB");
        assert_eq!(count(123_456_789_000.0), "123 G");
        assert_eq!(significant(123_456_789.0), "123456789");
        assert_eq!(significant(5.9598e30), "5.96e30");
    }
}
