//! Formats values with units.

/// Formats bytes in decimal units: `0 B`, `4.8 MB`, `139.8 GB`.
pub(crate) fn bytes(n: u64) -> String {
    let mut value = n as f64;
    let mut unit = "B";
    for next in ["kB", "MB", "GB", "TB", "PB"] {
        // A value that would print as 1000.0 takes the next unit.
        if value < 999.95 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    if unit == "B" { format!("{n} B") } else { format!("{value:.1} {unit}") }
}

/// Formats seconds with a suitable unit: `1.25 s`, `3.2 ms`, `840 us`.
pub(crate) fn seconds(s: f64) -> String {
    if s >= 0.9995 {
        format!("{s:.2} s")
    } else if s >= 0.9995e-3 {
        format!("{:.1} ms", s * 1e3)
    } else {
        format!("{:.0} us", s * 1e6)
    }
}

/// Returns `count` per second, or 0 if `seconds` is not positive.
pub(crate) fn rate(count: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { count / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_seconds_read_well() {
        let rows = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (4_788_672, "4.8 MB"),
            (999_960_000, "1.0 GB"),
            (u64::MAX, "18446.7 PB"),
        ];
        for (n, want) in rows {
            assert_eq!(bytes(n), want);
        }
        let rows = [(1.254, "1.25 s"), (0.0032, "3.2 ms"), (0.000_84, "840 us"), (0.0, "0 us")];
        for (s, want) in rows {
            assert_eq!(seconds(s), want);
        }
        assert_eq!((rate(6.0, 2.0), rate(6.0, 0.0)), (3.0, 0.0));
    }
}
