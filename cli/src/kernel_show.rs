//! Runs `warploom kernel show`: prints the expanded source of a built-in kernel.

use crate::Exit;
use crate::kernel_args::{Language, ShowArgs};
use crate::output;
use anyhow::{anyhow, bail};
use serde::Serialize;
use std::io::Write;
use warploom::kernel::catalogue::{self, CATALOGUE, Entry};
use warploom::kernel::codegen::translate_options;
use warploom::kernel::source::{asset_wgsl, cooperative_variants, variants};
use warploom::kernel::{Access, AssetSpec, KernelSpec};
use warploom_core::base::Format;
use warploom_wgsl::translate::{self, Options, Subgroups};

/// Default weight format of a kernel with a variant for each format.
const FORMAT: Format = Format::Q4K;
/// Maximum number of names that an error suggests.
const SUGGESTIONS: usize = 3;

pub(crate) fn run(args: &ShowArgs) -> anyhow::Result<Exit> {
    let mut out = output::stdout();
    let Some(name) = &args.name else {
        list(&mut out, args.json)?;
        return Ok(Exit::Done);
    };
    let shown = show(name, args)?;
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&shown)?)?,
        false => write!(out, "{}", shown.text)?,
    }
    Ok(Exit::Done)
}

/// A row of the list of kernels.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    doc: &'static str,
    constants: Vec<(&'static str, u32)>,
    defines: &'static [&'static str],
}

fn list(out: &mut impl Write, json: bool) -> anyhow::Result<()> {
    let rows = CATALOGUE.iter().map(|entry| Row {
        name: entry.name,
        doc: entry.doc,
        constants: entry.constants.to_vec(),
        defines: entry.defines,
    });
    let rows: Vec<Row> = rows.collect();
    if json {
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?);
    }
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    for row in rows {
        writeln!(out, "{:<width$}  {}", row.name, first_sentence(row.doc))?;
    }
    Ok(())
}

fn first_sentence(doc: &str) -> &str {
    doc.split_inclusive(". ").next().unwrap_or(doc).trim_end().trim_end_matches('.')
}

/// An expanded kernel and its description.
#[derive(Debug, Serialize)]
struct Shown {
    /// The kernel's name with defines and constants, as plans print it.
    kernel: String,
    doc: &'static str,
    language: &'static str,
    params: &'static [&'static str],
    bindings: Vec<ShownBinding>,
    text: String,
}

#[derive(Debug, Serialize)]
struct ShownBinding {
    name: &'static str,
    writes: bool,
}

fn show(name: &str, args: &ShowArgs) -> anyhow::Result<Shown> {
    let (entry, name) = find(name, args.format.as_deref())?;
    let asset = spec(entry, &name, &args.define)?;
    let wgsl = asset_wgsl(&asset)?;
    let text = match args.lang {
        Language::Wgsl => wgsl,
        Language::Cuda | Language::Opencl => translated(&asset, &wgsl, args.lang)?,
    };
    let bindings = entry.bindings.iter();
    let bindings =
        bindings.map(|(name, access)| ShownBinding { name, writes: *access == Access::ReadWrite });
    Ok(Shown {
        doc: entry.doc,
        language: args.lang.name(),
        params: entry.params,
        bindings: bindings.collect(),
        text: if text.ends_with('\n') { text } else { text + "\n" },
        kernel: KernelSpec::Asset(asset).to_string(),
    })
}

/// Returns the catalogue row and the full name of a kernel. If the given name lacks the weight
/// format, `format` or the default is added.
fn find(name: &str, format: Option<&str>) -> anyhow::Result<(&'static Entry, String)> {
    if let Some((entry, of)) = catalogue::find(name) {
        return match (of, format) {
            (Some(of), Some(format)) if of.name() != format => {
                bail!("{name} is the kernel of {}, but --format is {format}", of.name())
            }
            (None, Some(_)) => bail!("{name} has no weight format, so --format does not apply"),
            _ => Ok((entry, name.to_string())),
        };
    }
    let stem = name.trim_end_matches('*').trim_end_matches('_');
    let family = |entry: &&Entry| entry.name.strip_suffix("_*") == Some(stem);
    let Some(entry) = CATALOGUE.iter().find(family) else {
        return Err(unknown(name));
    };
    let formats: Vec<&str> = entry.formats().map(|f| f.name()).collect();
    let wanted = match format {
        Some(format) => format.to_ascii_lowercase(),
        None if formats.contains(&FORMAT.name()) => FORMAT.name().to_string(),
        None => formats.first().copied().unwrap_or_default().to_string(),
    };
    match formats.contains(&wanted.as_str()) {
        true => Ok((entry, format!("{stem}_{wanted}"))),
        false => bail!("{} has no format {wanted:?}, only {}", entry.name, formats.join(", ")),
    }
}

fn unknown(name: &str) -> anyhow::Error {
    let near = nearest(name);
    let near = if near.is_empty() { String::new() } else { format!(": {}?", near.join(", ")) };
    anyhow!("there is no kernel {name:?}{near} `warploom kernel show` lists all")
}

/// Returns the names of kernels that contain `name` or, if there are none, the most similar names.
fn nearest(name: &str) -> Vec<&'static str> {
    let names = || CATALOGUE.iter().map(|entry| entry.name.trim_end_matches("_*"));
    let inside: Vec<&str> = names().filter(|known| known.contains(name)).collect();
    if !name.is_empty() && !inside.is_empty() {
        return inside.into_iter().take(SUGGESTIONS).collect();
    }
    let mut all: Vec<(usize, &str)> = names().map(|known| (distance(name, known), known)).collect();
    all.sort();
    // A name with more than half of its letters changed is not similar.
    let similar = all.into_iter().filter(|(far, known)| 2 * far <= known.len());
    similar.map(|(_, known)| known).take(SUGGESTIONS).collect()
}

/// Returns the Levenshtein distance: the number of letters to insert, remove or replace.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Returns the tested variant of a kernel that has the given defines and the fewest others, with
/// the given constants. Each setting is `DEFINE` or `CONSTANT=VALUE`.
fn spec(entry: &Entry, name: &str, settings: &[String]) -> anyhow::Result<AssetSpec> {
    let (mut defines, mut constants) = (Vec::new(), Vec::new());
    for setting in settings {
        match setting.split_once('=') {
            None if entry.defines.contains(&setting.as_str()) => defines.push(setting.as_str()),
            None => {
                let known = entry.defines.join(", ");
                bail!("-D {setting}: {name} has no such define, only: {known}");
            }
            Some((key, value)) => {
                if !entry.constants.iter().any(|(known, _)| *known == key) {
                    let known: Vec<&str> = entry.constants.iter().map(|(name, _)| *name).collect();
                    bail!("-D {setting}: {name} has no such constant, only: {}", known.join(", "));
                }
                let number = value.parse::<u32>();
                let number = number.map_err(|_| anyhow!("-D {setting}: {value:?} is no u32"))?;
                constants.push((key, number));
            }
        }
    }
    let has = |spec: &AssetSpec, define: &str| spec.defines.iter().any(|d| d == define);
    let fits =
        |spec: &AssetSpec| spec.name == name && defines.iter().all(|define| has(spec, define));
    let all = variants().into_iter().chain(cooperative_variants());
    // Of equal variants, the first.
    let Some(base) = all.filter(fits).min_by_key(|spec| spec.defines.len()) else {
        bail!("{name} has no variant with {}", defines.join(" and "));
    };
    Ok(constants.into_iter().fold(base, |spec, (key, value)| spec.constant(key, value)))
}

/// Translates WGSL to the text that the provider of the language compiles.
fn translated(asset: &AssetSpec, wgsl: &str, language: Language) -> anyhow::Result<String> {
    let (module, info) = translate::parse(wgsl)?;
    let options = translate_options(&KernelSpec::Asset(asset.clone()));
    let options = Options { subgroups: Subgroups::Extension, ..options };
    let translated = match language {
        Language::Cuda => translate::cuda(&module, &info, &options)?,
        _ => translate::opencl(&module, &info, &options)?,
    };
    Ok(translated.text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn args(name: &str, define: &[&str], lang: Language) -> ShowArgs {
        ShowArgs {
            name: Some(name.into()),
            define: define.iter().map(ToString::to_string).collect(),
            format: None,
            lang,
            json: false,
        }
    }

    fn shown(name: &str, define: &[&str]) -> Shown {
        show(name, &args(name, define, Language::Wgsl)).unwrap_or_else(|e| panic!("{name}: {e:#}"))
    }

    /// With `UPDATE_GOLDEN=1` the test rewrites the files.
    #[test]
    fn expanded_kernels_are_as_written_down() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/kernels");
        let update = std::env::var("UPDATE_GOLDEN").is_ok_and(|v| v == "1");
        let kernels: [(&str, &[&str]); 6] = [
            ("softmax", &[]),
            ("matvec_prequant_q4_k", &["headers"]),
            ("attn_split_kv_fused", &["f16_kv"]),
            ("matmul_batched_coop", &[]),
            ("split_k_reduce", &[]),
            ("sample", &[]),
        ];
        let mut changed = Vec::new();
        for (name, define) in kernels {
            let (path, is) = (folder.join(format!("{name}.wgsl")), shown(name, define));
            assert!(!is.text.contains("\n#"), "{name}: a directive is left\n{}", is.text);
            let is = format!("// {}\n{}", is.kernel, is.text);
            if update {
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(&path, &is).unwrap();
                continue;
            }
            let was = std::fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
            let first = was.lines().zip(is.lines()).position(|(was, is)| was != is);
            if was != is {
                let line = first.unwrap_or_else(|| was.lines().count().min(is.lines().count()));
                changed.push(format!("{name}.wgsl:{}: {:?}", line + 1, is.lines().nth(line)));
            }
        }
        let changed = changed.join("\n");
        assert!(changed.is_empty(), "{changed}\nUPDATE_GOLDEN=1 writes the files anew");
    }

    #[test]
    fn every_kernel_of_the_list_is_shown() {
        let mut text = Vec::new();
        list(&mut text, false).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().count(), CATALOGUE.len());
        for (line, entry) in text.lines().zip(CATALOGUE) {
            let name = line.split(' ').next().unwrap();
            assert!(line.len() > name.len() + 10, "{line:?}");
            let shown = shown(name, &[]);
            let stem = entry.name.trim_end_matches('*');
            assert!(shown.kernel.starts_with(stem) && shown.text.contains("fn main("), "{line}");
            assert_eq!(shown.bindings.len(), entry.bindings.len());
        }
        let mut json = Vec::new();
        list(&mut json, true).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json.as_array().unwrap().len(), CATALOGUE.len());
    }

    #[test]
    fn settings_and_languages_change_the_text() {
        let plain = shown("softmax", &[]);
        let wide = shown("softmax", &["WG=256", "subgroup"]);
        assert_eq!(wide.kernel, "softmax+subgroup(WG=256)");
        assert!(plain.text != wide.text && wide.text.contains("WG: u32 = 256"));
        assert!(wide.text.contains("subgroupAdd") && !plain.text.contains("subgroupAdd"));
        let of = |lang| show("softmax", &args("softmax", &[], lang)).unwrap().text;
        assert!(of(Language::Cuda).contains("__global__"));
        assert!(of(Language::Opencl).contains("__kernel"));
        // A family has a default format, and its own kernels.
        assert!(shown("matvec", &[]).kernel.starts_with("matvec_q4_k"));
        let of = |format: &str| {
            let args =
                ShowArgs { format: Some(format.into()), ..args("matvec", &[], Language::Wgsl) };
            show("matvec", &args)
        };
        assert!(of("Q8_0").unwrap().kernel.starts_with("matvec_q8_0"));
        let error = of("q9_9").unwrap_err().to_string();
        assert!(error.contains("q9_9") && error.contains("q4_k, "), "{error}");
    }

    #[test]
    fn wrong_names_and_settings_are_explained() {
        let error = |name: &str, define: &[&str]| {
            show(name, &args(name, define, Language::Wgsl)).unwrap_err().to_string()
        };
        assert!(error("sofmax", &[]).contains("\"sofmax\": softmax"), "{}", error("sofmax", &[]));
        let inside = error("split_kv", &[]);
        assert!(inside.contains("attn_split_kv, ") && inside.contains("lists all"), "{inside}");
        let far = error("zzzzzzzzzzzz", &[]);
        assert!(!far.contains('?') && far.contains("lists all"), "{far}");
        assert!(error("softmax", &["tiles"]).contains("no such define, only: subgroup"));
        assert!(error("softmax", &["ROWS=2"]).contains("no such constant, only: WG"));
        assert!(error("softmax", &["WG=many"]).contains("\"many\" is no u32"));
        let both = error("matvec_prequant_q4_k", &["headers", "trits"]);
        assert!(both.contains("no variant with headers and trits"), "{both}");
        let format =
            ShowArgs { format: Some("q4_k".into()), ..args("softmax", &[], Language::Wgsl) };
        assert!(show("softmax", &format).unwrap_err().to_string().contains("--format"));
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
