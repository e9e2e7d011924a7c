//! Finds stop strings across token boundaries.

use std::collections::{HashMap, VecDeque};

/// A state of the automaton: the last bytes read that may begin a stop string.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Number of these bytes, which is the distance from the root.
    depth: usize,
    /// Index of the node of their longest proper suffix that is in the tree.
    fallback: usize,
    /// Index of the longest stop string that they end with.
    stop: Option<usize>,
}

/// Releases text that cannot be part of a stop string, and holds the rest back.
///
/// The match that ends first wins; of several that end together, the longest one. So the result
/// does not depend on token boundaries. The strings form one Aho-Corasick automaton, so the cost of
/// a byte does not depend on their number.
#[derive(Debug)]
pub struct StopStrings {
    /// Length of each string in bytes.
    lengths: Vec<usize>,
    nodes: Vec<Node>,
    children: HashMap<(usize, u8), usize>,
    /// Index of the current node.
    state: usize,
    /// Text that may begin a stop string: as many bytes as the depth of `state`.
    held: String,
    /// Index of the stop string that was found.
    found: Option<usize>,
}

impl StopStrings {
    /// Creates the automaton of these strings; an empty string never stops a text.
    pub fn new(stops: Vec<String>) -> StopStrings {
        let nodes = vec![Node::default()];
        let (children, held) = (HashMap::new(), String::new());
        let lengths = stops.iter().map(String::len).collect();
        let mut strings = StopStrings { lengths, nodes, children, state: 0, held, found: None };
        for (index, stop) in stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty()) {
            strings.insert(index, stop.as_bytes());
        }
        strings.link();
        strings
    }

    fn insert(&mut self, index: usize, stop: &[u8]) {
        let mut at = 0;
        for byte in stop {
            let next = self.nodes.len();
            let depth = self.nodes[at].depth + 1;
            at = *self.children.entry((at, *byte)).or_insert(next);
            if at == next {
                self.nodes.push(Node { depth, ..Node::default() });
            }
        }
        // Of equal strings, the first one.
        self.nodes[at].stop.get_or_insert(index);
    }

    /// Sets the fallback of each node, in order of depth, because it depends on those of shallower
    /// nodes.
    fn link(&mut self) {
        let mut below: HashMap<usize, Vec<(u8, usize)>> = HashMap::new();
        for ((parent, byte), child) in &self.children {
            below.entry(*parent).or_default().push((*byte, *child));
        }
        let mut queue = VecDeque::from([0]);
        while let Some(parent) = queue.pop_front() {
            for (byte, child) in below.remove(&parent).unwrap_or_default() {
                let fallback = match parent {
                    0 => 0,
                    _ => self.step(self.nodes[parent].fallback, byte),
                };
                self.nodes[child].fallback = fallback;
                self.nodes[child].stop = self.nodes[child].stop.or(self.nodes[fallback].stop);
                queue.push_back(child);
            }
        }
    }

    /// Returns the index of the node that one more byte leads to.
    fn step(&self, mut at: usize, byte: u8) -> usize {
        loop {
            match self.children.get(&(at, byte)) {
                Some(next) => return *next,
                None if at == 0 => return 0,
                None => at = self.nodes[at].fallback,
            }
        }
    }

    /// Appends text; returns the released text, and whether a stop string follows it.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        let from = self.held.len();
        self.held.push_str(text);
        for at in from..self.held.len() {
            self.state = self.step(self.state, self.held.as_bytes()[at]);
            if let Some(stop) = self.nodes[self.state].stop {
                let mut text = std::mem::take(&mut self.held);
                text.truncate(at + 1 - self.lengths[stop]);
                (self.state, self.found) = (0, Some(stop));
                return (text, true);
            }
        }
        // A stop string begins with a whole character, so this is a character boundary.
        let certain = self.held.len() - self.nodes[self.state].depth;
        let rest = self.held.split_off(certain);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// Returns the index of the stop string that was found last.
    pub fn found(&self) -> Option<usize> {
        self.found
    }

    /// Ends the text and returns the part that was held back.
    pub fn finish(&mut self) -> String {
        self.state = 0;
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text before a stop string, and whether there was one.
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
    fn the_stop_string_that_was_found_is_named() {
        for (stops, text, want) in [
            (["abc", "b", ""], "abc", Some(1)),
            (["", "bc", "abc"], "xabc", Some(2)),
            (["bc", "q", "bc"], "xbc", Some(0)),
            (["q", "r", "s"], "text", None),
        ] {
            let mut strings = StopStrings::new(stops.map(String::from).to_vec());
            strings.push(text);
            assert_eq!(strings.found(), want, "{stops:?} in {text:?}");
        }
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

    /// Reference implementation: finds the first end of any stop string, and the longest one that
    /// ends there.
    fn slow(stops: &[String], text: &str) -> (String, bool) {
        let ends = (1..=text.len()).filter(|end| text.is_char_boundary(*end));
        for end in ends {
            let ending = stops.iter().filter(|stop| text[..end].ends_with(stop.as_str()));
            if let Some(longest) = ending.map(String::len).max() {
                return (text[..end - longest].to_owned(), true);
            }
        }
        (text.to_owned(), false)
    }

    #[test]
    fn any_strings_are_found_as_by_looking_for_each() {
        let mut seed = 1u32;
        let mut draw = |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % below
        };
        let letters = ["a", "b", "\u{e9}", "\u{20ac}"];
        let mut found = 0;
        for _ in 0..4000 {
            let mut word = |most: u32| -> String {
                (0..=draw(most)).map(|_| letters[draw(4) as usize]).collect()
            };
            let stops: Vec<String> = (0..5).map(|_| word(5)).collect();
            let text = word(24);
            let chars: Vec<String> = text.chars().map(String::from).collect();
            let want = slow(&stops, &text);
            found += usize::from(want.1);
            let refs: Vec<&str> = stops.iter().map(String::as_str).collect();
            for size in [1, 3, 50] {
                let pieces: Vec<String> = chars.chunks(size).map(|c| c.concat()).collect();
                let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
                assert_eq!(cut(&refs, &pieces), want, "{stops:?} in {pieces:?}");
            }
        }
        assert!((500..3900).contains(&found), "{found}");
    }

    #[test]
    fn thousands_of_strings_cost_no_more_than_one() {
        let stops: Vec<String> = (0..4000).map(|i| format!("{i:04}x")).collect();
        let refs: Vec<&str> = stops.iter().map(String::as_str).collect();
        let text = "a1234 0000 3999y".repeat(2000);
        assert_eq!(cut(&refs, &[&text]), (text.clone(), false));
        assert_eq!(cut(&refs, &[&text, "b39", "99xz"]), (format!("{text}b"), true));
        // One long string with a repetitive beginning.
        let long = "a".repeat(16 << 10);
        let text = "a".repeat((16 << 10) - 1) + "b";
        let begin = std::time::Instant::now();
        let texts = [text.as_str(); 20];
        assert_eq!(cut(&[&long], &texts), (text.repeat(20), false));
        assert!(begin.elapsed() < std::time::Duration::from_secs(5), "{:?}", begin.elapsed());
    }
}
