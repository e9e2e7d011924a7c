//! The bytes of a tokenizer's tokens, as the search tree of the compiler.

use std::sync::Arc;

use llguidance::panic_utils;
use toktrie::{TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::tokenizer::Tokenizer;
use warploom::{Error, Result};

/// Maximum bytes of a token in the tree; longer ones are never allowed.
const MAX_TOKEN: usize = 1000;

/// A tokenizer with the tree of its tokens' bytes.
pub(super) struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    tree: TokTrie,
}

impl Vocabulary {
    pub(super) fn new(tokenizer: &Arc<Tokenizer>) -> Result<Vocabulary> {
        let count = tokenizer.vocabulary();
        let mut words = Vec::with_capacity(count);
        for id in 0..count as u32 {
            // A token that ends an answer is not text, even if its bytes are.
            let bytes = match tokenizer.is_stop(id) {
                true => &[][..],
                false => tokenizer.token_bytes(id)?,
            };
            words.push(if bytes.len() <= MAX_TOKEN { bytes.to_vec() } else { Vec::new() });
        }
        for (name, id) in tokenizer.control_tokens() {
            let word = words.get_mut(id as usize).filter(|word| word.is_empty());
            if let Some(word) = word.filter(|_| name.len() < MAX_TOKEN) {
                word.push(TokTrie::SPECIAL_TOKEN_MARKER);
                word.extend_from_slice(name.as_bytes());
            }
        }
        let mut ends: Vec<TokenId> = tokenizer.stop_tokens().collect();
        ends.sort_unstable();
        let Some(first) = ends.first().copied() else {
            return Err(Error::unsupported("constrained decoding: the model has no end token"));
        };
        let build = || {
            let tree = TokTrie::from(&TokRxInfo::new(count as u32, first), &words);
            Ok(tree.with_eos_tokens(&ends))
        };
        let tree = panic_utils::catch_unwind(std::panic::AssertUnwindSafe(build));
        let tree = tree.map_err(|error| {
            let text = super::first_line(&error.to_string());
            Error::unsupported(format!("constrained decoding: the vocabulary: {text}"))
        })?;
        Ok(Vocabulary { tokenizer: tokenizer.clone(), tree })
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.tree
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let encoded = std::str::from_utf8(bytes).ok();
        let encoded = encoded.and_then(|text| self.tokenizer.encode_inside(text).ok());
        // A tokenizer that changes the text cannot be asked for forced tokens.
        match encoded.filter(|ids| self.tree.decode_raw(ids) == bytes) {
            Some(ids) => ids,
            None => self.tree.greedy_tokenize(bytes),
        }
    }
}
