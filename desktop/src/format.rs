//! Numbers as people read them.

/// Formats bytes in decimal units: `0 bytes`, `4.8 MB`, `140 GB`.
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    let mut unit = "bytes";
    for next in ["kB", "MB", "GB", "TB", "PB"] {
        // A value that would print as 1000 takes the next unit.
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    match unit {
        "bytes" => format!("{count} bytes"),
        _ if value < 99.95 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// Formats seconds with a suitable unit: `1.25 s`, `3.2 ms`, `840 µs`.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s >= 0.9995 => format!("{s:.2} s"),
        s if s >= 0.9995e-3 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.0} µs", s * 1e6),
    }
}

/// Formats a rate with a metric prefix: `950`, `1.2 k`, `37.5 G`.
pub fn count(value: f64) -> String {
    let mut value = value;
    for unit in ["", " k", " M", " G"] {
        if value < 999.5 {
            return if unit.is_empty() || value >= 99.95 {
                format!("{value:.0}{unit}")
            } else {
                format!("{value:.1}{unit}")
            };
        }
        value /= 1000.0;
    }
    format!("{value:.1} T")
}

/// Formats the speed of an answer: `7.4 tokens/s`, `120 tokens/s`.
pub fn speed(tokens_per_second: f64) -> String {
    match tokens_per_second {
        speed if speed < 9.95 => format!("{speed:.1} tokens/s"),
        speed => format!("{speed:.0} tokens/s"),
    }
}

/// Formats a fraction as percent: `0.4 %`, `37 %`.
pub fn share(fraction: f64) -> String {
    match fraction * 100.0 {
        percent if percent < 9.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// Returns the last part of a path or of a file's name, for titles.
pub fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).find(|part| !part.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let sizes = [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1_000, "1.0 kB"),
            (4_788_672, "4.8 MB"),
            (139_800_000_000, "140 GB"),
        ];
        for (count, want) in sizes {
            assert_eq!(bytes(count), want);
        }
        assert_eq!(
            [seconds(1.25), seconds(0.0032), seconds(0.00084)],
            ["1.25 s", "3.2 ms", "840 µs"]
        );
        assert_eq!([count(950.0), count(1234.0), count(37.5e9)], ["950", "1.2 k", "37.5 G"]);
        assert_eq!([speed(7.41), speed(119.6)], ["7.4 tokens/s", "120 tokens/s"]);
        assert_eq!([share(0.0042), share(0.371)], ["0.4 %", "37 %"]);
        assert_eq!(file_name("/models/a.gguf"), "a.gguf");
    }
}
