//! Number formatting for display.

/// Formats a value with about three digits in powers of a thousand: `0`, `840`, `4.8 k`, `1.2 M`.
fn scaled(value: f64, unit: &str) -> String {
    let mut value = value;
    let mut prefix = "";
    for next in ["k", "M", "G", "T"] {
        // A value that would print as 1000 moves to the next unit.
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        prefix = next;
    }
    let digits = if prefix.is_empty() || value >= 99.95 { 0 } else { 1 };
    format!("{value:.digits$} {prefix}{unit}").trim_end().to_string()
}

/// Formats a number of bytes: `4.8 kB`.
pub(super) fn bytes(value: f64) -> String {
    scaled(value, "B")
}

/// Formats a count: `4.8 M`.
pub(super) fn count(value: f64) -> String {
    scaled(value, "")
}

/// Formats seconds: `840 us`, `3.2 ms`, `0.4 us`.
pub(super) fn seconds(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 0.9995 => (v, "s"),
        v if v >= 0.9995e-3 => (v * 1e3, "ms"),
        v => (v * 1e6, "us"),
    };
    let digits = usize::from(scaled < 99.95);
    format!("{scaled:.digits$} {unit}")
}

/// Formats a fraction as a percentage: `82%`.
pub(super) fn share(value: f64) -> String {
    format!("{:.0}%", value * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!((bytes(840.0), bytes(4788.0)), ("840 B".into(), "4.8 kB".into()));
        assert_eq!((bytes(999_600.0), count(2.5e8)), ("1.0 MB".into(), "250 M".into()));
        assert_eq!((seconds(0.0004), seconds(0.00325)), ("400 us".into(), "3.2 ms".into()));
        assert_eq!((seconds(4.2e-7), share(0.824)), ("0.4 us".into(), "82%".into()));
    }
}
