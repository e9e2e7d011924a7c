//! Loop re-rolling: finds repetitions in a list of steps, so that a decoder's layers are shown
//! once.

/// A run of items that may repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fold {
    /// Index of the first item.
    pub(super) start: usize,
    /// Number of items in one repetition.
    pub(super) len: usize,
    /// Number of repetitions; 1 for items that do not repeat.
    pub(super) times: usize,
}

/// Maximum items in one repetition.
const MAX_LEN: usize = 96;
/// Minimum items that re-rolling must save, since the heading of a repetition takes a line too.
const LEAST: usize = 4;

/// Splits a list into runs, from its start on. Each run is the one that saves the most items.
pub(super) fn fold<T: PartialEq>(items: &[T]) -> Vec<Fold> {
    let mut folds: Vec<Fold> = Vec::new();
    let mut at = 0;
    while at < items.len() {
        let (len, times) = best(&items[at..]);
        match folds.last_mut() {
            Some(last) if times == 1 && last.times == 1 => last.len += len,
            _ => folds.push(Fold { start: at, len, times }),
        }
        at += len * times;
    }
    folds
}

/// Returns the length and repetitions of the run at the start of a list that saves the most items.
fn best<T: PartialEq>(items: &[T]) -> (usize, usize) {
    let (mut found, mut saved) = ((1, 1), LEAST - 1);
    for len in 1..=MAX_LEN.min(items.len() / 2) {
        let same = (len..items.len()).take_while(|i| items[*i] == items[i - len]).count();
        let times = 1 + same / len;
        // The shorter run wins a tie.
        if len * (times - 1) > saved {
            (found, saved) = ((len, times), len * (times - 1));
        }
    }
    found
}

/// Masks the numbers of a label, so that `blk.3.attn_q` and `blk.4.attn_q` are equal.
pub(super) fn masked(label: &str) -> String {
    let mut text = String::with_capacity(label.len());
    let mut in_number = false;
    for c in label.chars() {
        if !c.is_ascii_digit() {
            text.push(c);
        } else if !in_number {
            text.push('#');
        }
        in_number = c.is_ascii_digit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(text: &str) -> Vec<(usize, usize, usize)> {
        let items: Vec<char> = text.chars().collect();
        fold(&items).iter().map(|f| (f.start, f.len, f.times)).collect()
    }

    #[test]
    fn repetitions_are_found_and_cover_the_list() {
        assert_eq!(runs("eabcdabcdabcdz"), [(0, 1, 1), (1, 4, 3), (13, 1, 1)]);
        assert_eq!(runs("aaaaaaaa"), [(0, 1, 8)]);
        // The saving is too small.
        assert_eq!(runs("abab"), [(0, 4, 1)]);
        assert_eq!(runs(""), []);
        for text in ["xabcabcabcabcxabcabc", "aabbaabbaabbab", "abcdefgh"] {
            let mut next = 0;
            for (start, len, times) in runs(text) {
                assert_eq!(start, next);
                next = start + len * times;
                for i in start + len..next {
                    assert_eq!(text.as_bytes()[i], text.as_bytes()[i - len]);
                }
            }
            assert_eq!(next, text.len());
        }
    }

    #[test]
    fn numbers_are_masked() {
        assert_eq!(masked("blk.12.attn_q (linear)"), "blk.#.attn_q (linear)");
    }
}
