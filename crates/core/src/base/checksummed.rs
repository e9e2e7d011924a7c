//! Checksummed JSON files: a header line, then the body.
//!
//! ```text
//! warploom-plan 1 <BLAKE3 hash of the body, in hex> <length of the body in bytes>
//! {"name":..}
//! ```
//!
//! The checksum detects damage, not tampering: the content is still untrusted input.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Maximum length of the header line in bytes.
const MAX_HEAD: usize = 128;

/// A file format with a checksummed header.
#[derive(Clone, Copy, Debug)]
pub struct Checksummed {
    /// First word of the header.
    pub magic: &'static str,
    /// Version of the format.
    pub version: u32,
    /// Name of this kind of file, for errors.
    pub what: &'static str,
    /// Maximum size of a file in bytes.
    pub max_bytes: usize,
}

impl Checksummed {
    /// Creates a bad-file error; its message begins with the kind of file.
    pub fn bad(&self, what: impl std::fmt::Display) -> Error {
        Error::bad_file(format!("{}: {what}", self.what))
    }

    /// Serialises a value as the bytes of a file. Equal values produce equal bytes.
    ///
    /// # Errors
    /// Invalid if JSON cannot represent the value, or if the file would exceed `max_bytes`.
    pub fn write(&self, value: &impl Serialize) -> Result<Vec<u8>> {
        let body = serde_json::to_vec(value).map_err(|e| {
            Error::invalid(format!("{} cannot be written", self.what)).with_source(e)
        })?;
        let hash = blake3::hash(&body).to_hex();
        let mut bytes =
            format!("{} {} {hash} {}\n", self.magic, self.version, body.len()).into_bytes();
        bytes.extend(body);
        if bytes.len() > self.max_bytes {
            let (have, most) = (bytes.len(), self.max_bytes);
            let what = self.what;
            return Err(Error::invalid(format!("{what}: {have} bytes to write, at most {most}")));
        }
        Ok(bytes)
    }

    /// Checks the bytes of a file and returns the value that it stores.
    ///
    /// # Errors
    /// Bad file, with the problem and its position, if the file is too large, damaged, or of a
    /// different kind or version, or if it contains an invalid value.
    pub fn read<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T> {
        if bytes.len() > self.max_bytes {
            return Err(self.bad(format!("{} bytes, at most {}", bytes.len(), self.max_bytes)));
        }
        let (head, body) = split(bytes).map_err(|what| self.bad(what))?;
        let words: Vec<&str> = head.split(' ').collect();
        let &[magic, version, hash, length] = &words[..] else {
            let count = words.len();
            return Err(self.bad(format!("offset 0: {count} words in the first line, not 4")));
        };
        if magic != self.magic {
            let expected = self.magic;
            return Err(
                self.bad(format!("offset 0: the magic word is {magic:?}, not {expected:?}"))
            );
        }
        if version != self.version.to_string() {
            return Err(self.bad(format!("version {version}, this build reads {}", self.version)));
        }
        let at = bytes.len() - body.len();
        if length != body.len().to_string() {
            let have = body.len();
            return Err(self.bad(format!("{have} bytes from offset {at} on, not {length}")));
        }
        if hash != blake3::hash(body).to_hex().as_str() {
            return Err(
                self.bad(format!("the bytes from offset {at} on do not match the checksum"))
            );
        }
        serde_json::from_slice(body).map_err(|e| {
            // The body is one line unless it was edited by hand.
            self.bad(format!("line {}, column {}: {e}", e.line() + 1, e.column()))
        })
    }
}

/// Splits the header line from the body; the error is the text of a message.
fn split(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let end = bytes.iter().take(MAX_HEAD).position(|byte| *byte == b'\n');
    let end = end.ok_or_else(|| format!("offset 0: no first line in {MAX_HEAD} bytes"))?;
    let head = std::str::from_utf8(&bytes[..end])
        .map_err(|e| format!("offset {}: the first line is not text", e.valid_up_to()))?;
    Ok((head, &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read_back() {
        let file =
            |max_bytes| Checksummed { magic: "a-test", version: 1, what: "words", max_bytes };
        let value = "x".repeat(500);
        let bytes = file(1000).write(&value).unwrap();
        let exact = file(bytes.len());
        assert_eq!(exact.read::<String>(&exact.write(&value).unwrap()).unwrap(), value);
        let error = file(bytes.len() - 1).write(&value).unwrap_err();
        let message = format!("words: {} bytes to write, at most {}", bytes.len(), bytes.len() - 1);
        assert!(error.is_invalid() && error.to_string().contains(&message), "{error}");
    }
}
