//! The tokens around two texts that are read together, as rerankers read a query and a text.

use serde_json::Value as Json;

use warploom::{Error, Result};

/// The tokens around two texts that are read together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) before: Vec<u32>,
    pub(crate) between: Vec<u32>,
    pub(crate) behind: Vec<u32>,
    /// Whether the tokens from the second text on have the second token type.
    pub(crate) has_types: bool,
}

impl Pair {
    /// Reads the pair of a post-processor; `None` if it has none.
    ///
    /// # Errors
    /// Bad file, naming the key, for contents that are no such template.
    pub(super) fn read(
        processor: &Json,
        id_of: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<Option<Pair>> {
        let bad = |what: &str| Error::bad_file(format!("post_processor: {what}"));
        match processor.get("type").and_then(Json::as_str) {
            Some(kind @ ("BertProcessing" | "RobertaProcessing")) => {
                let id = |name: &str| {
                    let id = processor[name].get(1).and_then(Json::as_u64);
                    let id = id.and_then(|id| u32::try_from(id).ok());
                    id.ok_or_else(|| bad("sep and cls must be pairs of a text and an id"))
                };
                let (begin, end) = (id("cls")?, id("sep")?);
                let is_bert = kind == "BertProcessing";
                let between = if is_bert { vec![end] } else { vec![end, end] };
                let (before, behind) = (vec![begin], vec![end]);
                Ok(Some(Pair { before, between, behind, has_types: is_bert }))
            }
            Some("Sequence") => {
                for step in processor["processors"].as_array().into_iter().flatten() {
                    if let Some(pair) = Pair::read(step, id_of)? {
                        return Ok(Some(pair));
                    }
                }
                Ok(None)
            }
            Some("TemplateProcessing") => {
                let pieces = processor["pair"].as_array().filter(|pieces| !pieces.is_empty());
                pieces.map(|pieces| Pair::of_template(processor, pieces, id_of)).transpose()
            }
            _ => Ok(None),
        }
    }

    fn of_template(
        processor: &Json,
        pieces: &[Json],
        id_of: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<Pair> {
        let bad = |what: &str| Error::bad_file(format!("post_processor: pair: {what}"));
        let (mut pair, mut texts) = (Pair::default(), String::new());
        for piece in pieces {
            if let Some(text) = piece.pointer("/Sequence/id").and_then(Json::as_str) {
                texts.push_str(text);
                let kind = piece.pointer("/Sequence/type_id").and_then(Json::as_u64);
                pair.has_types |= text == "B" && kind == Some(1);
                continue;
            }
            let name = piece.pointer("/SpecialToken/id").and_then(Json::as_str);
            let name = name.ok_or_else(|| bad("neither a text nor a token"))?;
            let to = match texts.as_str() {
                "" => &mut pair.before,
                "A" => &mut pair.between,
                _ => &mut pair.behind,
            };
            match processor["special_tokens"].get(name).and_then(|t| t["ids"].as_array()) {
                None => to.push(id_of(name).ok_or_else(|| bad("a token without ids"))?),
                Some(ids) => {
                    for id in ids {
                        let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
                        to.push(id.ok_or_else(|| bad("not an id"))?);
                    }
                }
            }
        }
        match texts.as_str() {
            "AB" => Ok(pair),
            _ => Err(bad("must have both texts, A before B, once each")),
        }
    }

    /// Returns the greatest token.
    pub(super) fn largest(&self) -> Option<u32> {
        [&self.before, &self.between, &self.behind].into_iter().flatten().max().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(processor: &Json) -> Result<Option<Pair>> {
        Pair::read(processor, &|name| (name == "[SEP]").then_some(9))
    }

    #[test]
    fn each_kind_of_processor_has_its_pair() {
        let cls = |kind: &str| json!({"type": kind, "cls": ["a", 1], "sep": ["b", 2]});
        let pair = |before: &[u32], between: &[u32], behind: &[u32], has_types| Pair {
            before: before.to_vec(),
            between: between.to_vec(),
            behind: behind.to_vec(),
            has_types,
        };
        let bert = pair(&[1], &[2], &[2], true);
        assert_eq!(read(&cls("BertProcessing")).unwrap(), Some(bert.clone()));
        let roberta = pair(&[1], &[2, 2], &[2], false);
        assert_eq!(read(&cls("RobertaProcessing")).unwrap(), Some(roberta));
        let several = json!({"type": "Sequence", "processors": [{"type": "ByteLevel"}, cls("BertProcessing")]});
        assert_eq!(read(&several).unwrap(), Some(bert));
        let text = |id: &str, kind: u32| json!({"Sequence": {"id": id, "type_id": kind}});
        let token = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
        let template = |pair: Json| json!({"type": "TemplateProcessing", "pair": pair, "special_tokens": {"[CLS]": {"ids": [3, 4]}}});
        let pieces =
            json!([token("[CLS]"), text("A", 0), token("[SEP]"), text("B", 1), token("[SEP]")]);
        assert_eq!(read(&template(pieces)).unwrap(), Some(pair(&[3, 4], &[9], &[9], true)));
        assert_eq!(read(&template(json!([]))).unwrap(), None);
        assert_eq!(read(&Json::Null).unwrap(), None);
        for wrong in
            [json!([text("B", 0), text("A", 0)]), json!([text("A", 0)]), json!([token("x")])]
        {
            assert!(read(&template(wrong)).unwrap_err().is_bad_file());
        }
    }
}
