//! Recognises files of other formats by their first bytes, and advises what to do.
//!
//! A downloaded web page, a Git LFS pointer, an archive, another program's format: each is a common
//! mistake with its own fix, which a "wrong magic" error would hide.

use std::fmt;

use warploom_core::error::Error;

/// Number of bytes inspected at the start of a file.
const LOOKED_AT: usize = 64 << 10;
/// Maximum number of characters that an error quotes.
const QUOTED: usize = 80;

/// [`Foreign::what`] of a safetensors file.
pub const SAFETENSORS: &str = "a safetensors file, not a GGUF file";

/// A recognised file of a different format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Description, such as `a web page, not a model`.
    pub what: &'static str,
    /// Advice, and details from the file.
    pub advice: String,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.advice)
    }
}

/// A format with a magic number: its byte offset, its bytes, description, advice.
type Row = (usize, &'static [u8], &'static str, &'static str);

const UNPACK: &str = "unpack it, and name the model in it";
const OLD: &str = "an old ggml file, from before GGUF";
const OLD_ADVICE: &str = "take the model's GGUF file, or convert the original model to GGUF again";
const OTHER_ENGINE: &str =
    "the format of another engine: take the model's GGUF file, or its folder with safetensors";
const SWAPPED: &str = "a GGUF file of the other byte order";
const SWAPPED_ADVICE: &str = "only little-endian files are read: take that file, or convert this one \
     with gguf-py's gguf_convert_endian.py";
const PROGRAM: &str = "a program, not a model";

const MAGIC: &[Row] = &[
    (0, b"GGUF", "a GGUF file", "give it a name that ends in .gguf"),
    (0, b"FUGG", SWAPPED, SWAPPED_ADVICE),
    (0, b"lmgg", OLD, OLD_ADVICE),
    (0, b"fmgg", OLD, OLD_ADVICE),
    (0, b"tjgg", OLD, OLD_ADVICE),
    (0, b"ggml", OLD, OLD_ADVICE),
    (0, b"ggmf", OLD, OLD_ADVICE),
    (0, b"ggjt", OLD, OLD_ADVICE),
    (0, b"algg", "a LoRA adapter in an old ggml format", MERGE),
    (0, b"ggla", "a LoRA adapter in an old ggml format", MERGE),
    (0, b"nsgg", "a saved session of llama.cpp, not a model", "name the model that it belongs to"),
    (0, b"qsgg", "a saved session of llama.cpp, not a model", "name the model that it belongs to"),
    (0, b"\x1f\x8b", "a gzip archive", UNPACK),
    (0, b"\x1f\x9d", "an archive of compress", UNPACK),
    (0, b"\xfd7zXZ\0", "an xz archive", UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "a zstd archive", UNPACK),
    (0, b"BZh", "a bzip2 archive", UNPACK),
    (0, b"Rar!\x1a\x07", "a RAR archive", UNPACK),
    (0, b"\x04\x22\x4d\x18", "an lz4 archive", UNPACK),
    (0, b"LZIP", "an lzip archive", UNPACK),
    (0, b"!<arch>\n", "an archive of ar", UNPACK),
    (257, b"ustar", "a tar archive", UNPACK),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file, as of Keras", OTHER_ENGINE),
    (0, b"\x93NUMPY", "a NumPy array", OTHER_ENGINE),
    (4, b"TFL3", "a TensorFlow Lite model", OTHER_ENGINE),
    (0, b"SQLite format 3\0", "an SQLite database, not a model", "name the model's own file"),
    (0, b"%PDF", "a PDF document, not a model", "name the model's own file"),
    (0, b"\x89PNG", "a picture, not a model", "name the model's own file"),
    (0, b"\xff\xd8\xff", "a picture, not a model", "name the model's own file"),
    (0, b"MZqFpD", "a llamafile", "it is a program around a GGUF file: unzip it, and name that"),
    (0, b"\x7fELF", PROGRAM, "name the model's own file"),
];

pub(super) const MERGE: &str =
    "an adapter is not a model: merge it into its base model, and name the result";

/// Recognises, by its bytes, the format of a file that is not GGUF; `None` if the format is
/// unknown. If the bytes are ambiguous, the extension of `name` decides.
pub fn recognise(bytes: &[u8], name: &str) -> Option<Foreign> {
    let head = &bytes[..bytes.len().min(LOOKED_AT)];
    let is = |what: &'static str, advice: &str| Some(Foreign { what, advice: advice.to_owned() });
    if head.is_empty() {
        return is("an empty file", "it has 0 bytes: fetch it again");
    }
    if head.len() >= 16 && head.iter().all(|byte| *byte == 0) {
        let advice = format!(
            "its first {} bytes are 0, as in a download that has not ended: fetch it again",
            head.len()
        );
        return Some(Foreign { what: "a file without content", advice });
    }
    let has = |(at, magic, ..): &&Row| head.get(*at..).is_some_and(|rest| rest.starts_with(magic));
    if let Some((_, _, what, advice)) = MAGIC.iter().find(has) {
        return is(what, advice);
    }
    if head.starts_with(b"PK") && head.get(2).is_some_and(|b| [1, 3, 5, 7].contains(b)) {
        return Some(zip(head));
    }
    if is_pickle(head) {
        return is(PYTORCH, PYTORCH_ADVICE);
    }
    if is_safetensors(head) {
        return is(
            SAFETENSORS,
            "it holds weights without numbers and vocabulary: name the folder that has it with \
             config.json and tokenizer.json",
        );
    }
    if is_onnx(head) || name.to_ascii_lowercase().ends_with(".onnx") {
        return is("an ONNX model", OTHER_ENGINE);
    }
    // An entry of SentencePiece's vocabulary.
    if head[0] == 0x0a && find(&head[..head.len().min(64)], b"<unk>").is_some() {
        return is("a SentencePiece vocabulary", "name the model that it belongs to");
    }
    if head.starts_with(b"MZ") && find(head, b"This program").is_some() {
        return is(PROGRAM, "name the model's own file");
    }
    match utf16(head) {
        Some(wide) => text(wide.as_bytes(), false),
        None => text(head, bytes.len() > head.len()),
    }
}

/// Decodes UTF-16 text with a byte order mark, as some Windows programs save it; `None` if the
/// bytes are not UTF-16 text.
pub fn utf16(head: &[u8]) -> Option<String> {
    let (pairs, word): (_, fn([u8; 2]) -> u16) = match head {
        [0xff, 0xfe, rest @ ..] => (rest.chunks_exact(2), u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => (rest.chunks_exact(2), u16::from_be_bytes),
        _ => return None,
    };
    let mut words: Vec<u16> = pairs.map(|pair| word([pair[0], pair[1]])).collect();
    // The last character may be cut in two.
    words.pop_if(|last| (0xd800..0xdc00).contains(last));
    String::from_utf16(&words).ok()
}

/// Recognises a web page, a server's XML error or a Git LFS pointer, which may be in place of a
/// file of any format, including text.
pub fn stand_in(bytes: &[u8]) -> Option<Foreign> {
    let head = &bytes[..bytes.len().min(LOOKED_AT)];
    let text = utf16(head).map_or_else(|| String::from_utf8_lossy(head), Into::into);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let start: String = text.chars().take(4096).collect::<String>().to_ascii_lowercase();
    const LFS: [&str; 2] =
        ["version https://git-lfs.github.com/spec/", "version https://hawser.github.com/spec/"];
    if LFS.iter().any(|pointer| start.starts_with(pointer)) {
        let size = text.lines().find_map(|line| line.strip_prefix("size ")?.trim().parse().ok());
        let bytes = size.map(|n: u64| format!(", of {n} bytes,")).unwrap_or_default();
        let advice =
            format!("fetch the file with git lfs pull; this text stands for it{bytes} until then");
        return Some(Foreign { what: "a Git LFS pointer", advice });
    }
    let is_page = ["<!doctype html", "<html", "<head", "<body", "<script", "<title"]
        .iter()
        .any(|tag| start.starts_with(tag));
    if is_page || (start.starts_with('<') && start.contains("<html")) {
        let title = between(text, "<title>", "</title>").map(|title| format!(" ({title:?})"));
        let advice = format!(
            "the link was to a page about the file{}: fetch the file itself, on Hugging Face through \
             /resolve/ instead of /blob/",
            title.unwrap_or_default()
        );
        return Some(Foreign { what: "a web page, not a model", advice });
    }
    if start.starts_with("<?xml") || start.starts_with("<error") {
        let said = between(text, "<Message>", "</Message>").or(between(text, "<Code>", "</Code>"));
        let said = said.map_or(String::new(), |said| format!(" says {said:?}, and"));
        let advice = format!("it{said} is what a server sends instead of a file");
        return Some(Foreign { what: "an XML document, not a model", advice });
    }
    None
}

const PYTORCH: &str = "a PyTorch checkpoint (a pickle)";
const PYTORCH_ADVICE: &str = "it is not read, only GGUF and safetensors are: take the model's \
                              safetensors, or write them with save_pretrained";

/// Classifies a zip archive by its entry names.
fn zip(head: &[u8]) -> Foreign {
    let is = |what: &'static str, advice: &str| Foreign { what, advice: advice.to_owned() };
    if find(head, b"/data.pkl").is_some() || find(head, b"/byteorder").is_some() {
        return is(PYTORCH, PYTORCH_ADVICE);
    }
    // Name of the first entry: length at byte 26, text from byte 30 on.
    let length = head.get(26..28).map_or(0, |n| usize::from(u16::from_le_bytes([n[0], n[1]])));
    let name = head.get(30..30 + length).map(String::from_utf8_lossy).unwrap_or_default();
    match name.ends_with(".npy") {
        true => is("an archive of NumPy arrays", OTHER_ENGINE),
        false if name.is_empty() => is("a zip archive", UNPACK),
        false => Foreign {
            what: "a zip archive",
            advice: format!("{UNPACK} (it begins with {:?})", shortened(&name)),
        },
    }
}

/// Returns whether the bytes are a pickle of protocol 2 to 5, PyTorch's format before it used zip
/// archives.
fn is_pickle(head: &[u8]) -> bool {
    let first = |next: u8| [b'}', b']', b'(', b'c', b'K', b'X', 0x8a, 0x8c, 0x95].contains(&next);
    matches!(head, [0x80, 2..=5, next, ..] if first(*next))
}

/// Returns whether the bytes are a plausible 8-byte length followed by the start of a JSON object.
fn is_safetensors(head: &[u8]) -> bool {
    let Some((length, rest)) = head.split_first_chunk::<8>() else { return false };
    let length = u64::from_le_bytes(*length);
    (2..=100_000_000).contains(&length) && rest.first() == Some(&b'{') && rest.get(1) == Some(&b'"')
}

/// Returns whether the bytes are an ONNX protobuf: the format version, then the producer or the
/// graph.
fn is_onnx(head: &[u8]) -> bool {
    match head {
        [0x08, 1..=30, 0x12, length @ 1..=64, rest @ ..] => rest
            .get(..usize::from(*length))
            .is_some_and(|name| name.iter().all(|b| b.is_ascii_graphic() || *b == b' ')),
        [0x08, 1..=30, 0x3a | 0x42, ..] => head.len() > 16,
        _ => false,
    }
}

/// Classifies a text file; `goes_on` is whether the file is longer than `head`.
fn text(head: &[u8], goes_on: bool) -> Option<Foreign> {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        // The last character may be truncated.
        Err(error) if goes_on && error.valid_up_to() + 4 > head.len() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let text = text.trim_start_matches('\u{feff}').trim();
    // A few letters are no evidence, and binary files contain other control characters.
    let printable = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    if text.len() < 5 || !text.chars().all(printable) {
        return None;
    }
    if let Some(found) = stand_in(head) {
        return Some(found);
    }
    let what = match text.as_bytes() {
        [b'{' | b'[', rest @ ..] if begins_json(rest) => "JSON, not a model",
        [b'<', b'a'..=b'z' | b'A'..=b'Z' | b'?' | b'!', ..] => "an XML document, not a model",
        _ => "plain text, not a model",
    };
    let advice = format!("it begins with {:?}: name the model's own file", shortened(text));
    Some(Foreign { what, advice })
}

/// Returns whether JSON may go on like this behind its opening bracket. Logs and settings files
/// begin with a bracket too: `[info] ..`.
fn begins_json(rest: &[u8]) -> bool {
    let rest = rest.trim_ascii_start();
    let word = |word: &str| rest.starts_with(word.as_bytes());
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match rest.first() {
        Some(b'"' | b'{' | b'[' | b']' | b'}' | b'-') => true,
        // `[2024-01-01]` is a date.
        Some(b'0'..=b'9') => !matches!(rest.get(digits), Some(b'-' | b':' | b'/')),
        _ => ["true", "false", "null"].into_iter().any(word),
    }
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(QUOTED).collect();
    if short.len() < text.len() {
        short.push_str("..");
    }
    short
}

fn between(text: &str, open: &str, close: &str) -> Option<String> {
    let rest = &text[text.find(open)? + open.len()..];
    Some(shortened(rest[..rest.find(close)?].trim()))
}

fn find(bytes: &[u8], word: &[u8]) -> Option<usize> {
    bytes.windows(word.len()).position(|window| window == word)
}

/// Adds advice based on the name of an unreadable file to an error about its contents.
pub(super) fn with_hint(name: &str, error: Error) -> Error {
    match hint(name) {
        Some(hint) if error.is_bad_file() => Error::bad_file(format!("{error}: {hint}")),
        _ => error,
    }
}

/// Returns advice based on the name of an unreadable file, if the name is that of an unfinished
/// download or of a fragment of a file.
fn hint(name: &str) -> Option<&'static str> {
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name).to_ascii_lowercase();
    let ending = name.rsplit('.').next().unwrap_or_default();
    let numbered = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let piece = match ending.strip_prefix("part") {
        Some(rest) => rest.split_once("of").is_some_and(|(n, of)| numbered(n) && numbered(of)),
        None => {
            let after = |mark: &str| name.rsplit_once(mark).map_or("", |(_, rest)| rest);
            let letters = |text: &str| {
                (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase())
            };
            letters(after(".gguf-split-")) || (ending.len() == 3 && numbered(ending))
        }
    };
    if piece {
        return Some(
            "its name is that of a piece of a file that was cut: join all pieces in their order \
             with cat, and name the result",
        );
    }
    const UNFINISHED: [&str; 8] =
        ["part", "partial", "crdownload", "download", "incomplete", "aria2", "opdownload", "tmp"];
    UNFINISHED.contains(&ending).then_some(
        "its name is that of a download that has not ended: let it end, or fetch the file again",
    )
}

#[cfg(test)]
#[path = "foreign_tests.rs"]
mod tests;
