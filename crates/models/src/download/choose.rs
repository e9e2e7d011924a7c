//! Selects the files of a model in a repository.

use super::Source;
use warploom_core::error::{Error, Result};

/// Quantisations in the default order of preference: small ones with little loss first.
const PREFERRED: [&str; 12] = [
    "Q4_K_M", "Q4_K_S", "Q5_K_M", "Q4_0", "Q4_1", "Q5_K_S", "Q6_K", "Q8_0", "IQ4_XS", "IQ4_NL",
    "F16", "BF16",
];
/// Parts of names of GGUF files that are not language models on their own.
const OTHER: [&str; 4] = ["mmproj", "imatrix", "-vocab", "draft"];
/// Files of a safetensors model besides the weights; the first two are required.
const FOLDER: [&str; 7] = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "model.safetensors.index.json",
];
const MAX_TOLD: usize = 12;

/// Returns the files among `names` that `source` selects, in order: one GGUF file, the parts of a
/// split one, or all files of a safetensors model.
///
/// # Errors
/// Invalid, listing the candidates, if none or several match.
pub(super) fn choose(names: &[String], source: &Source) -> Result<Vec<String>> {
    let mut models = models_of(names);
    models.sort();
    if let Some(what) = &source.what {
        if let Some(name) = names.iter().find(|name| *name == what) {
            return Ok(with_parts(name, names));
        }
        return one(&models, what, names, source);
    }
    if models.is_empty() {
        return folder(names, source);
    }
    if let [name] = firsts(&models)[..] {
        return Ok(with_parts(name, names));
    }
    let found = PREFERRED.iter().find(|quant| models.iter().any(|name| is_of(name, quant)));
    match found {
        Some(quant) => one(&models, quant, names, source),
        None => Err(choice_error("does not say which file to use", &models, source)),
    }
}

/// Returns what names each model of a repository: its GGUF files, the first parts of split ones;
/// `None` for a folder of safetensors.
pub(super) fn each(names: &[String]) -> Vec<Option<String>> {
    let models = models_of(names);
    match models.is_empty() {
        true => vec![None],
        false => firsts(&models).into_iter().cloned().map(Some).collect(),
    }
}

/// Returns the only file of a quantisation, or all its parts if it is split.
fn one(models: &[&String], what: &str, names: &[String], source: &Source) -> Result<Vec<String>> {
    let found: Vec<&String> = firsts(models).into_iter().filter(|name| is_of(name, what)).collect();
    match found[..] {
        [name] => Ok(with_parts(name, names)),
        [] => Err(choice_error("is not there", models, source)),
        _ => Err(choice_error("could be several", &found, source)),
    }
}

fn choice_error(what: &str, models: &[&String], source: &Source) -> Error {
    let mut list: Vec<&str> = models.iter().take(MAX_TOLD).map(|name| name.as_str()).collect();
    if models.len() > MAX_TOLD {
        list.push("..");
    }
    let list = if list.is_empty() { "no GGUF file".to_owned() } else { list.join(", ") };
    Error::invalid(format!("{source} {what}; {} has {list}", source.repo))
}

/// Keeps only the first part of each split file.
fn firsts<'a>(models: &[&'a String]) -> Vec<&'a String> {
    let first = |name: &&&String| part_of(name).is_none_or(|(_, part, _)| part == 1);
    models.iter().filter(first).copied().collect()
}

/// Returns the GGUF files of language models.
fn models_of(names: &[String]) -> Vec<&String> {
    let is_model = |name: &&String| {
        name.ends_with(".gguf") && !OTHER.iter().any(|other| base(name).contains(other))
    };
    names.iter().filter(is_model).collect()
}

/// Returns the name of a file without its folders.
fn base(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Returns whether the file or its folder is named after a quantisation: `Q4_K` does not match
/// `Q4_K_M`.
fn is_of(name: &str, quant: &str) -> bool {
    let quant = quant.to_ascii_uppercase();
    let stem = name.strip_suffix(".gguf").unwrap_or(name).to_ascii_uppercase();
    stem.match_indices(&quant).any(|(at, _)| {
        let border = |c: Option<char>| c.is_none_or(|c| matches!(c, '-' | '.' | '/'));
        border(stem[..at].chars().next_back()) && border(stem[at + quant.len()..].chars().next())
    })
}

/// Splits a name such as `name-00002-of-00003.gguf` into `name`, 2 and 3.
fn part_of(name: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, part) = rest.rsplit_once('-')?;
    let number = |text: &str| {
        let digits = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
        if digits { text.parse().ok() } else { None }
    };
    Some((stem, number(part)?, number(count)?))
}

/// Returns a file, or all parts of the split file that it belongs to.
fn with_parts(name: &str, names: &[String]) -> Vec<String> {
    let Some((stem, _, count)) = part_of(name) else { return vec![name.to_owned()] };
    // One more than exist suffices to detect missing parts.
    let count_here = count.min(names.len() as u32 + 1);
    (1..=count_here).map(|part| format!("{stem}-{part:05}-of-{count:05}.gguf")).collect()
}

/// Returns the files of a safetensors model.
fn folder(names: &[String], source: &Source) -> Result<Vec<String>> {
    let has = |name: &str| names.iter().any(|n| n == name);
    let weights = |name: &&String| name.ends_with(".safetensors") && !name.contains('/');
    let mut weights: Vec<String> = names.iter().filter(weights).cloned().collect();
    if !FOLDER[..2].iter().all(|name| has(name)) || weights.is_empty() {
        return Err(choice_error("contains no readable model", &[], source));
    }
    weights.sort();
    let files = FOLDER.iter().filter(|name| has(name)).map(|name| (*name).to_owned());
    Ok(files.chain(weights).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn chosen(list: &[&str], what: &str) -> Result<Vec<String>> {
        let text = if what.is_empty() { "o/n".to_owned() } else { format!("o/n:{what}") };
        choose(&names(list), &Source::parse(&text).unwrap())
    }

    #[test]
    fn what_is_meant_is_found() {
        let many =
            ["README.md", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m.Q8_0.gguf", "mmproj-F16.gguf"];
        let split =
            ["BF16/m-BF16-00001-of-00002.gguf", "BF16/m-BF16-00002-of-00002.gguf", "m-Q4_0.gguf"];
        let folder = [
            "config.json",
            "tokenizer.json",
            "special_tokens_map.json",
            "added_tokens.json",
            "model.safetensors",
            "onnx/x.safetensors",
            "a.bin",
        ];
        let rows: [(&[&str], &str, &[&str]); 11] = [
            (&many, "", &["m-Q4_K_M.gguf"]),
            (&many, "q8_0", &["m.Q8_0.gguf"]),
            (&many, "Q4_K_S", &["m-Q4_K_S.gguf"]),
            (&many, "m.Q8_0.gguf", &["m.Q8_0.gguf"]),
            (&many, "mmproj-F16.gguf", &["mmproj-F16.gguf"]),
            (&["only-odd.gguf", "x"], "", &["only-odd.gguf"]),
            (&split, "", &["m-Q4_0.gguf"]),
            (&split, "bf16", &split[..2]),
            (&split, split[1], &split[..2]),
            (&split[..2], "", &split[..2]),
            (&folder, "", &folder[..5]),
        ];
        for (list, what, want) in rows {
            assert_eq!(chosen(list, what).unwrap(), want, "{list:?}: {what}");
        }
    }

    #[test]
    fn an_ambiguous_choice_is_an_error_that_lists_the_files() {
        let rows: [(&[&str], &str, &str); 6] = [
            (&["m-Q4_K_M.gguf"], "Q4_K", "is not there; o/n has m-Q4_K_M.gguf"),
            (&["a-Q4_0.gguf", "b-Q4_0.gguf"], "Q4_0", "several; o/n has a-Q4_0.gguf, b-Q4_0.gguf"),
            (&["a-odd.gguf", "b-odd.gguf"], "", "which file to use"),
            (&["README.md"], "", "no readable model"),
            (&["config.json", "tokenizer.json", "pytorch_model.bin"], "", "no readable model"),
            (&[], "Q4_0", "no GGUF file"),
        ];
        for (list, what, words) in rows {
            let error = chosen(list, what).unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains(words), "{error}");
        }
    }
}
