//! Scores of texts for a query, by an encoder that reads both together.

use super::config::Pooling;
use super::embedder::{Embedder, Text};
use warploom::{Error, Result};

impl Embedder {
    /// Returns whether the model is a reranker, which scores pairs of a query and a text.
    pub fn reranks(&self) -> bool {
        self.pooling() == Pooling::Score
    }

    /// Returns how well each text answers the query, from 0 to 1: the sigmoid of the model's result.
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
            return Err(Error::invalid(format!(
                "{}: this model gives vectors, not scores of pairs: it is no reranker",
                self.model().file().name()
            )));
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
}
