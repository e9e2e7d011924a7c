//! Strings that end an answer, found across the borders of tokens.

/// Gives out text that is certain to stand before any stop string, and holds the rest back.
///
/// The match that ends first counts, and of those that end together the one that begins first:
/// so the text is the same however tokens cut it.
#[derive(Debug)]
pub(super) struct StopStrings {
    stops: Vec<String>,
    /// Text that may be the beginning of a stop string.
    held: String,
}

impl StopStrings {
    pub(super) fn new(stops: Vec<String>) -> StopStrings {
        StopStrings { stops, held: String::new() }
    }

    /// Takes text; returns what is certain now, and whether a stop string follows it.
    pub(super) fn push(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        let found = |stop: &String| self.held.find(stop.as_str()).map(|at| (at + stop.len(), at));
        if let Some((_, start)) = self.stops.iter().filter_map(found).min() {
            let mut text = std::mem::take(&mut self.held);
            text.truncate(start);
            return (text, true);
        }
        let rest = self.held.split_off(self.certain());
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// Ends the text: what is still held back.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Bytes of `held` with which no stop string can begin.
    fn certain(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = self.held.len().saturating_sub(longest.saturating_sub(1));
        let starts = self.held.char_indices().map(|(at, _)| at).filter(|at| *at >= from);
        let begins = |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        starts.into_iter().find(begins).unwrap_or(self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text before a stop string, and whether there was one.
    fn cut(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut strings = StopStrings::new(stops.iter().map(|s| s.to_string()).collect());
        let mut out = String::new();
        for piece in pieces {
            let (text, stopped) = strings.push(piece);
            out.push_str(&text);
            if stopped {
                return (out, true);
            }
        }
        (out + &strings.finish(), false)
    }

    #[test]
    fn stops_are_found_however_the_text_is_cut() {
        let rows: [(&[&str], &str, &str, bool); 9] = [
            (&[], "plain", "plain", false),
            (&["\n\n"], "one\n\ntwo", "one", true),
            (&["END"], "the ENd, EN", "the ENd, EN", false),
            (&["aab"], "aaaab", "aa", true),
            (&["abc", "b"], "abc", "a", true),
            (&["bc", "abc"], "xabc", "x", true),
            (&["\u{e9}t"], "un \u{e9}t\u{e9}", "un ", true),
            (&["\u{e9}ta"], "un \u{e9}t\u{e9}", "un \u{e9}t\u{e9}", false),
            (&["x"], "x", "", true),
        ];
        for (stops, text, want, stopped) in rows {
            let chars: Vec<String> = text.chars().map(String::from).collect();
            for size in 1..=chars.len() {
                let pieces: Vec<String> = chars.chunks(size).map(|c| c.concat()).collect();
                let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
                let got = cut(stops, &pieces);
                assert_eq!(got, (want.to_owned(), stopped), "{stops:?} in {pieces:?}");
            }
        }
    }

    #[test]
    fn only_what_may_begin_a_stop_is_held_back() {
        let mut strings = StopStrings::new(vec!["STOP".into()]);
        assert_eq!(strings.push("text S"), ("text ".into(), false));
        assert_eq!(strings.push("T"), (String::new(), false));
        assert_eq!(strings.push("ART"), ("START".into(), false));
        assert_eq!(strings.finish(), "");
    }
}
