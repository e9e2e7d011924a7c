//! Decompresses request bodies.
//!
//! Not by `tower-http`, which reads the first member of a gzip body alone and ignores what comes
//! after it in the same chunk. Here all members count, anything else is an error, and bodies are
//! inflated where they are parsed: one at a time.

use std::borrow::Cow;
use std::io::Read;

use flate2::bufread::{GzDecoder, MultiGzDecoder};

use super::error::ApiError;

/// The content coding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Plain,
    Gzip,
}

/// Parses a `content-encoding` field.
///
/// # Errors
/// 415, naming the field, if it contains anything but `identity` and one `gzip`.
pub(super) fn coding(field: &str) -> Result<Coding, ApiError> {
    let mut coding = Coding::Plain;
    for word in field.split(',').map(str::trim) {
        let is = |name: &str| word.eq_ignore_ascii_case(name);
        match coding {
            _ if word.is_empty() || is("identity") => {}
            Coding::Plain if is("gzip") || is("x-gzip") => coding = Coding::Gzip,
            _ => {
                let text =
                    format!("content-encoding: {field:?} is not supported: use gzip once, or none");
                return Err(ApiError::new(415, text).code("unsupported_encoding"));
            }
        }
    }
    Ok(coding)
}

/// Decompresses a body; stops once the result exceeds `limit` bytes.
///
/// # Errors
/// 400 if the body does not match its coding; 413 if its decompressed size exceeds `limit`.
pub(super) fn inflated(
    coding: Coding,
    body: &[u8],
    limit: usize,
) -> Result<Cow<'_, [u8]>, ApiError> {
    if coding == Coding::Plain {
        return Ok(body.into());
    }
    let mut out = Vec::new();
    let mut from = MultiGzDecoder::new(body).take(limit as u64 + 1);
    if let Err(error) = from.read_to_end(&mut out) {
        let why = match behind_first_member(body) {
            Some(at) => format!("from byte {at} of {} on it is not gzip", body.len()),
            None => format!("the body is not gzip: {error}"),
        };
        return Err(ApiError::new(400, format!("content-encoding: {why}")));
    }
    match out.len() > limit {
        true => Err(ApiError::new(413, format!("the body has more than {limit} bytes inflated"))),
        false => Ok(out.into()),
    }
}

/// Returns the length of the first gzip member of a body that goes on with something else.
fn behind_first_member(body: &[u8]) -> Option<usize> {
    let mut first = GzDecoder::new(body);
    std::io::copy(&mut first, &mut std::io::sink()).ok()?;
    let rest = first.into_inner();
    (!rest.is_empty() && !rest.starts_with(&[0x1f, 0x8b])).then(|| body.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn codings_are_gzip_or_none() {
        for (field, want) in [
            ("gzip", Some(Coding::Gzip)),
            ("GZip", Some(Coding::Gzip)),
            ("x-gzip", Some(Coding::Gzip)),
            ("identity, gzip", Some(Coding::Gzip)),
            ("identity", Some(Coding::Plain)),
            ("", Some(Coding::Plain)),
            ("deflate", None),
            ("br", None),
            ("zstd", None),
            ("gzip, gzip", None),
            ("gzipped", None),
        ] {
            let got = coding(field);
            assert_eq!(got.as_ref().ok(), want.as_ref(), "{field}");
            assert!(got.err().is_none_or(|e| e.status == 415 && e.message.contains(field)));
        }
    }

    #[test]
    fn bodies_are_inflated_up_to_the_limit() {
        let text = b"{\"a\": 1}".repeat(100);
        let packed = gzip(&text);
        assert_eq!(inflated(Coding::Plain, &packed, 9).unwrap(), packed);
        assert_eq!(inflated(Coding::Gzip, &packed, 800).unwrap(), text);
        assert_eq!(inflated(Coding::Gzip, &packed, 799).unwrap_err().status, 413);
        // Several gzip members form one body.
        let (a, b) = (gzip(&text[..9]), gzip(&text[9..]));
        assert_eq!(inflated(Coding::Gzip, &[a, b].concat(), 800).unwrap(), text);
        for end in 0..packed.len() {
            let error = inflated(Coding::Gzip, &packed[..end], 800).unwrap_err();
            assert_eq!(error.status, 400, "{end}: {}", error.message);
        }
        let mut wrong = packed.clone();
        wrong[packed.len() - 6] ^= 1;
        assert_eq!(
            inflated(Coding::Gzip, &wrong, 800).unwrap_err().status,
            400,
            "a wrong checksum"
        );
        assert_eq!(inflated(Coding::Gzip, &text, 800).unwrap_err().status, 400);
        let junk = [packed.clone(), b"xyz".to_vec()].concat();
        let message = inflated(Coding::Gzip, &junk, 800).unwrap_err().message;
        let want = format!("from byte {} of {} on it is not gzip", packed.len(), packed.len() + 3);
        assert!(message.contains(&want), "{message}");
        // A decompression bomb.
        let bomb = gzip(&vec![0; 64 << 20]);
        assert!(bomb.len() < 100_000);
        let error = inflated(Coding::Gzip, &bomb, 1 << 20).unwrap_err();
        assert_eq!((error.status, error.message.contains("1048576")), (413, true));
    }
}
