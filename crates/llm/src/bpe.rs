//! Byte-pair encoding: turns the characters of a word into tokens, and merges neighbours by rank.
//!
//! Merges are applied in the order of the `tokenizers` crate, with which tests compare the ids.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// A merge: the ids of both parts and of the result.
pub(super) type Merge = (u32, u32, u32);

/// Id of a symbol that was merged into the one before it; no vocabulary has as many tokens.
const MERGED: u32 = u32::MAX;
/// Index of no symbol.
const NONE: usize = usize::MAX;

/// A vocabulary and its merges.
#[derive(Debug)]
pub(super) struct Bpe {
    ids: HashMap<String, u32>,
    /// Rank and result of each pair that merges.
    merges: HashMap<(u32, u32), (usize, u32)>,
    /// Whether a word that is itself a token becomes that token without any merges.
    ignore_merges: bool,
    /// The tokens `<0x00>` to `<0xFF>`, which replace the bytes of a character without a token.
    bytes: Option<Vec<Option<u32>>>,
}

/// One token of a word, in a list that is linked in both directions.
#[derive(Clone, Copy)]
struct Symbol {
    id: u32,
    before: usize,
    after: usize,
}

impl Bpe {
    /// Creates an encoder. `merges` are in the order of their ranks, best first.
    pub(super) fn new(
        ids: HashMap<String, u32>,
        merges: &[Merge],
        ignore_merges: bool,
        byte_fallback: bool,
    ) -> Bpe {
        let ranked = merges.iter().enumerate();
        let merges = ranked.map(|(rank, (a, b, whole))| ((*a, *b), (rank, *whole))).collect();
        let byte = |byte: u8| ids.get(&format!("<{byte:#04X}>")).copied();
        let bytes = byte_fallback.then(|| (0..=255).map(byte).collect());
        Bpe { ids, merges, ignore_merges, bytes }
    }

    /// Appends the tokens of a word. Characters without a token are left out.
    pub(super) fn encode(&self, word: &str, out: &mut Vec<u32>) {
        if self.ignore_merges
            && let Some(id) = self.ids.get(word)
        {
            out.push(*id);
            return;
        }
        let mut symbols = self.characters(word);
        self.merge(&mut symbols);
        out.extend(symbols.iter().map(|symbol| symbol.id).filter(|id| *id != MERGED));
    }

    fn characters(&self, word: &str) -> Vec<Symbol> {
        let mut symbols = Vec::with_capacity(word.len());
        let mut push = |id| {
            let at: usize = symbols.len();
            symbols.push(Symbol { id, before: at.wrapping_sub(1), after: at + 1 });
        };
        let mut buffer = [0; 4];
        for c in word.chars() {
            let text: &str = c.encode_utf8(&mut buffer);
            if let Some(id) = self.ids.get(text) {
                push(*id);
            } else if let Some(tokens) = &self.bytes {
                let ids: Option<Vec<u32>> =
                    text.bytes().map(|byte| tokens.get(usize::from(byte)).copied()?).collect();
                ids.into_iter().flatten().for_each(&mut push);
            }
        }
        if let Some(last) = symbols.last_mut() {
            last.after = NONE;
        }
        symbols
    }

    /// Merges the pair of the lowest rank, the first of several, until no pair merges.
    fn merge(&self, symbols: &mut [Symbol]) {
        let pair = |symbols: &[Symbol], at: usize| {
            let left = symbols.get(at)?;
            let right = symbols.get(left.after)?;
            let (rank, whole) = self.merges.get(&(left.id, right.id))?;
            Some(Reverse((*rank, at, *whole)))
        };
        let mut queue: BinaryHeap<_> =
            (0..symbols.len()).filter_map(|at| pair(symbols, at)).collect();
        while let Some(Reverse((_, at, whole))) = queue.pop() {
            // The entry counts as long as the pair that is there now has the same result.
            match pair(symbols, at) {
                Some(Reverse((_, _, now))) if now == whole => {}
                _ => continue,
            }
            let gone = symbols[at].after;
            let after = symbols[gone].after;
            symbols[gone].id = MERGED;
            symbols[at] = Symbol { id: whole, after, ..symbols[at] };
            if let Some(next) = symbols.get_mut(after) {
                next.before = at;
            }
            queue.extend(pair(symbols, symbols[at].before));
            queue.extend(pair(symbols, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::Model;
    use tokenizers::models::bpe::{BPE, Vocab};

    /// The ids of random words over a small alphabet, where most pairs merge, are those of the
    /// `tokenizers` crate.
    #[test]
    fn words_become_the_tokens_of_the_library() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut several = 0;
        for round in 0..200 {
            let mut tokens: Vec<String> = ["a", "b", "c", "d"].map(String::from).to_vec();
            tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
            if round % 2 == 1 {
                // Without this byte the fallback does not apply to é.
                tokens.retain(|token| token != "<0xC3>");
            }
            let texts = tokens.len();
            let (mut merges, mut pairs) = (Vec::new(), Vec::new());
            for _ in 0..60 {
                let mut pick = || {
                    let made = tokens.len() - texts;
                    match random(4 + made as u64) as usize {
                        letter @ 0..4 => letter,
                        made => texts + made - 4,
                    }
                };
                let (a, b) = (pick(), pick());
                let whole = format!("{}{}", tokens[a], tokens[b]);
                if whole.len() > 8 || pairs.contains(&(tokens[a].clone(), tokens[b].clone())) {
                    continue;
                }
                let at = tokens.iter().position(|token| *token == whole).unwrap_or(tokens.len());
                if at == tokens.len() {
                    tokens.push(whole);
                }
                merges.push((a as u32, b as u32, at as u32));
                pairs.push((tokens[a].clone(), tokens[b].clone()));
            }
            let ids: HashMap<String, u32> = tokens.iter().cloned().zip(0..).collect();
            let ignore_merges = round % 3 == 0;
            let library = BPE::builder()
                .vocab_and_merges(ids.clone().into_iter().collect::<Vocab>(), pairs)
                .ignore_merges(ignore_merges)
                .byte_fallback(true)
                .build()
                .unwrap();
            let bpe = Bpe::new(ids, &merges, ignore_merges, true);
            for _ in 0..40 {
                let len = random(24);
                let word: String =
                    (0..len).map(|_| ['a', 'b', 'c', 'd', 'a', 'é'][random(6) as usize]).collect();
                let want: Vec<u32> =
                    library.tokenize(&word).unwrap().iter().map(|token| token.id).collect();
                let mut got = Vec::new();
                bpe.encode(&word, &mut got);
                assert_eq!(got, want, "{word:?} in round {round}");
                several += usize::from(want.len() > 1 && want.len() < word.len());
            }
        }
        assert!(several > 1000, "only {several} words were merged in part");
    }
}
