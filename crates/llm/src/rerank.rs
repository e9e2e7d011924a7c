//! Scores of texts for a query, by a model that reads both together: an encoder with a layer for
//! scores, or a language model that is asked whether a text answers the query.

use super::chat::filled;
use super::config::Pooling;
use super::embedder::{Embedder, Text};
use super::model::Model;
use super::tokenizer::EncodeOptions;
use warploom::{Error, Result};

/// Name of the template in which a language model finds the query and the text, and the template of
/// those that do not have it: Qwen3-Reranker's.
const TEMPLATE: &str = "tokenizer.chat_template.rerank";
const QUESTION: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based \
    on the Query and the Instruct provided. Note that the answer can only be \"yes\" or \
    \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant \
    passages that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n\
    <|im_start|>assistant\n<think>\n\n</think>\n\n";

/// Returns the error for a model that is no reranker.
pub(super) fn is_none(model: &Model) -> Error {
    Error::invalid(format!(
        "{}: this model gives vectors, not scores of pairs: it is no reranker",
        model.file().name()
    ))
}

/// Returns the tokens of the answers yes and no.
///
/// # Errors
/// Unsupported if one of them is not one token.
pub(super) fn answers(model: &Model) -> Result<[u32; 2]> {
    let token = |word: &str| match model.tokenizer().encode(word, EncodeOptions::default())?[..] {
        [token] => Ok(token),
        ref tokens => Err(Error::unsupported(format!(
            "{}: a reranker answers {word:?} by one token, this vocabulary has {} for it",
            model.file().name(),
            tokens.len()
        ))),
    };
    Ok([token("yes")?, token("no")?])
}

impl Embedder {
    /// Returns whether the model is a reranker, which scores pairs of a query and a text.
    pub fn reranks(&self) -> bool {
        self.pooling() == Pooling::Score
    }

    /// Returns how well each text answers the query, from 0 to 1: the sigmoid of the model's result, or
    /// the share of yes among its answers.
    /// Blocks until the device is done.
    ///
    /// # Errors
    /// Same as [`Embedder::rerank_async`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn rerank(&mut self, query: &str, texts: &[impl AsRef<str>]) -> Result<Vec<f32>> {
        warploom_core::base::platform::block_on(self.rerank_async(query, texts))
    }

    /// Returns how well each text answers the query, from 0 to 1. Asynchronous.
    ///
    /// # Errors
    /// Invalid if the model is no reranker, or, naming the text, if it has with the query more tokens
    /// than the model's context, unless the builder was to cut it; a score that is not finite is an
    /// error of the device. Also errors of the tokenizer, of planning and of the device.
    pub async fn rerank_async(
        &mut self,
        query: &str,
        texts: &[impl AsRef<str>],
    ) -> Result<Vec<f32>> {
        let pairs = texts.iter().enumerate().map(|(i, text)| {
            self.encode_pair(query, text.as_ref()).map_err(|e| e.context(format!("text {}", i + 1)))
        });
        let pairs = pairs.collect::<Result<Vec<_>>>()?;
        let rows = self.run_all(&pairs).await?;
        let scores = rows.into_iter().map(|row| match row[..] {
            [score] if score.is_finite() => Ok(1.0 / (1.0 + (-score).exp())),
            [yes, no] if (yes - no).is_finite() => Ok(1.0 / (1.0 + (no - yes).exp())),
            _ => Err(Error::device(format!("{}: a score of {row:?}", self.model().file().name()))),
        });
        scores.collect()
    }

    /// Returns the tokens of a query and a text, with those around them. A text that is too long is
    /// cut, if the builder said so.
    ///
    /// # Errors
    /// Invalid if the model is no reranker, or there are more tokens than its context; errors of the
    /// tokenizer.
    pub(super) fn encode_pair(&self, query: &str, text: &str) -> Result<Text> {
        if !self.reranks() {
            return Err(is_none(self.model()));
        }
        if self.model().config().architecture.answers {
            return self.encode_question(query, text);
        }
        let (query, mut text, pair) = self.model().tokenizer().encode_pair(query, text)?;
        let around = pair.before.len() + pair.between.len() + pair.behind.len();
        let (count, most) = (around + query.len() + text.len(), self.context());
        if count > most {
            let over = count - most;
            if !self.truncates() || over >= text.len() {
                return Err(Error::invalid(format!(
                    "{count} tokens with the query, the model's context has {most}"
                )));
            }
            text.truncate(text.len() - over);
        }
        let mut tokens = pair.before.clone();
        tokens.extend(query);
        tokens.extend(&pair.between);
        let second = if pair.has_types { tokens.len() } else { usize::MAX };
        tokens.extend(text);
        tokens.extend(&pair.behind);
        Ok(Text { tokens, second })
    }

    /// Returns the tokens of the question whether a text answers a query. Neither of them can become a
    /// control token.
    fn encode_question(&self, query: &str, text: &str) -> Result<Text> {
        let (model, most) = (self.model(), self.context());
        let template = model.file().find_str(TEMPLATE)?.unwrap_or(QUESTION);
        let encode = |text: &str| {
            let prompt =
                filled(template, &[("{query}", query), ("{document}", text)], model.tokenizer());
            prompt.encode(model.tokenizer(), false)
        };
        let mut tokens = encode(text)?;
        let count = tokens.len();
        let mut kept = text;
        while tokens.len() > most {
            if !self.truncates() || kept.is_empty() {
                return Err(Error::invalid(format!(
                    "{count} tokens with the query, the model's context has {most}"
                )));
            }
            // Each token has at least a byte; whole characters are kept.
            let over = tokens.len() - most;
            let mut end = kept.len().saturating_sub(over);
            while !kept.is_char_boundary(end) {
                end -= 1;
            }
            kept = &kept[..end];
            tokens = encode(kept)?;
        }
        Ok(Text { tokens, second: usize::MAX })
    }
}
