//! How the hidden states of a text become one vector.

use super::config::Keys;
use warploom::{Error, Result};

/// How the hidden states of a text become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pooling {
    /// The mean of all tokens.
    Mean,
    /// The first token.
    First,
    /// The last token.
    Last,
    /// A token of which a further layer makes a score: the first one of an encoder, the last one of a
    /// language model. The model is a reranker.
    Score,
}

impl Pooling {
    /// Returns the pooling of vectors with this name, `mean`, `first` or `last`.
    ///
    /// # Errors
    /// Invalid, listing the names, for another one.
    pub fn of(name: &str) -> Result<Pooling> {
        match name {
            "mean" => Ok(Pooling::Mean),
            "first" | "cls" => Ok(Pooling::First),
            "last" => Ok(Pooling::Last),
            _ => Err(Error::invalid(format!("pooling {name:?}: known are mean, first and last"))),
        }
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Pooling::Mean => "mean",
            Pooling::First => "first",
            Pooling::Last => "last",
            Pooling::Score => "score",
        }
    }

    /// Returns the weight of each token of a text of `len` tokens.
    pub(super) fn weights(self, len: usize) -> impl Iterator<Item = f32> {
        (0..len).map(move |token| match self {
            Pooling::Mean => 1.0 / len as f32,
            Pooling::First | Pooling::Score => f32::from(u8::from(token == 0)),
            Pooling::Last => f32::from(u8::from(token + 1 == len)),
        })
    }
}

impl Keys<'_> {
    /// Reads the pooling. Files that do not say it have that of their kind: the mean of an encoder's
    /// tokens, and the last token of a text that was read from left to right.
    pub(super) fn pooling(&self) -> Result<Pooling> {
        let name = "pooling_type";
        match self.file.find_u64(&self.key(name))? {
            Some(1) => Ok(Pooling::Mean),
            Some(2) => Ok(Pooling::First),
            Some(3) => Ok(Pooling::Last),
            None | Some(0) if self.architecture.encodes => Ok(Pooling::Mean),
            None | Some(0) => Ok(Pooling::Last),
            Some(4) if self.architecture.encodes || self.architecture.answers => Ok(Pooling::Score),
            Some(4) => Err(self.unsupported(name, "4, a score by this architecture,".into())),
            Some(other) => Err(self.bad(name, format!("{other}, must be from 0 to 4"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pooling_weighs_tokens_by_its_name() {
        for (name, want) in
            [("mean", [0.25; 4]), ("first", [1.0, 0.0, 0.0, 0.0]), ("last", [0.0, 0.0, 0.0, 1.0])]
        {
            let pooling = Pooling::of(name).unwrap();
            assert_eq!(pooling.weights(4).collect::<Vec<_>>(), want);
            assert_eq!(pooling.name(), name);
        }
        assert!(Pooling::of("max").unwrap_err().to_string().contains("mean, first and last"));
    }
}
