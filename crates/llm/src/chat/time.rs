//! `strftime_now` of templates: formats a UTC time with C's format letters.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// Maximum size of a format, in bytes.
const MAX_FORMAT: usize = 256;

/// Formats `time` by `format`; returns an error message for an unsupported letter or a format that
/// is too long.
pub(super) fn format(time: SystemTime, format: &str) -> Result<String, String> {
    if format.len() > MAX_FORMAT {
        return Err(format!("strftime_now: a format of more than {MAX_FORMAT} bytes"));
    }
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let days = seconds / 86_400;
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let month_name = MONTHS[(month - 1) as usize];
    // Day 0 was a Thursday.
    let weekday = (days + 4) % 7;
    let day_name = DAYS[weekday as usize];
    let half = if hour % 12 == 0 { 12 } else { hour % 12 };
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        // `%-d` is a number without leading zeros.
        let letter = chars.next();
        let (bare, letter) = match letter {
            Some('-') => (true, chars.next()),
            letter => (false, letter),
        };
        let two = |n: u64| if bare { n.to_string() } else { format!("{n:02}") };
        out.push_str(&match letter {
            Some('Y') => year.to_string(),
            Some('y') => two(year % 100),
            Some('m') => two(month),
            Some('d') => two(day),
            Some('e') => format!("{day:2}"),
            Some('H') => two(hour),
            Some('I') => two(half),
            Some('M') => two(minute),
            Some('S') => two(second),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            Some('B') => month_name.to_owned(),
            Some('A') => day_name.to_owned(),
            Some('a') => day_name[..3].to_owned(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('b' | 'h') => month_name[..3].to_owned(),
            Some('j') => {
                let number = day_of_year(days);
                if bare { number.to_string() } else { format!("{number:03}") }
            }
            Some('w') => weekday.to_string(),
            Some('u') => (if weekday == 0 { 7 } else { weekday }).to_string(),
            Some('D' | 'x') => format!("{month:02}/{day:02}/{:02}", year % 100),
            Some('R') => format!("{hour:02}:{minute:02}"),
            Some('X') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('c') => format!(
                "{} {} {day:2} {hour:02}:{minute:02}:{second:02} {year}",
                &day_name[..3],
                &month_name[..3]
            ),
            Some('n') => "\n".to_owned(),
            Some('t') => "\t".to_owned(),
            // A Python time without a zone has no zone name.
            Some('Z' | 'z') => String::new(),
            Some('%') => "%".to_owned(),
            other => {
                let other = other.map_or(String::new(), String::from);
                return Err(format!("strftime_now: %{other} is not supported"));
            }
        });
    }
    Ok(out)
}

/// Returns the day of the year, from 1, of a day counted from 1970-01-01.
fn day_of_year(days: u64) -> u64 {
    let year = date(days).0;
    let before =
        (0..366).take_while(|back| days.checked_sub(*back).is_some_and(|d| date(d).0 == year));
    before.count() as u64
}

/// Converts a day counted from 1970-01-01 to year, month and day (Howard Hinnant's
/// `civil_from_days`).
fn date(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let of_era = z % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let rows = [
            (0, "%A %d %B %Y %H:%M:%S", "Thursday 01 January 1970 00:00:00"),
            (951_782_400, "%F %a %-d %b %y", "2000-02-29 Tue 29 Feb 00"),
            (1_709_251_199, "%F %T %I%p", "2024-02-29 23:59:59 11PM"),
            (4_107_542_400, "%d %b %Y %%", "01 Mar 2100 %"),
            (
                1_709_251_199,
                "%j %w %u %D %R %c%Z",
                "060 4 4 02/29/24 23:59 Thu Feb 29 23:59:59 2024",
            ),
        ];
        for (seconds, text, want) in rows {
            assert_eq!(format(at(seconds), text).unwrap(), want);
        }
        assert!(format(at(0), "%Q").unwrap_err().contains("%Q"));
    }
}
