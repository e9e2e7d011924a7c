//! Converts the bytes of tokens to text incrementally.
//!
//! A token is a sequence of bytes, not of characters: an emoji or a CJK character often takes two
//! to four tokens. A stream returns complete characters and holds the rest back.

/// Converts chunks of UTF-8 to text, holding back an unfinished character.
///
/// Each maximal invalid part becomes one U+FFFD, as in [`String::from_utf8_lossy`], so the text
/// does not depend on how the bytes are split into chunks.
#[derive(Clone, Debug, Default)]
pub struct Utf8Stream {
    /// Start of an unfinished character, at most 3 bytes.
    held: Vec<u8>,
}

impl Utf8Stream {
    /// Creates an empty stream.
    pub fn new() -> Utf8Stream {
        Utf8Stream::default()
    }

    /// Appends bytes, and returns the text that they complete, which may be empty.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest = self.held.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = after;
                    if let Some(invalid) = error.error_len() {
                        text.push(char::REPLACEMENT_CHARACTER);
                        rest = &after[invalid..];
                        continue;
                    }
                }
            }
            break;
        }
        self.held = rest.to_vec();
        text
    }

    /// Ends the stream, and returns one U+FFFD if bytes are still held back.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }

    /// Returns the number of bytes held back, at most 3.
    pub fn held(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text of `bytes`, pushed `step` at a time.
    fn streamed(bytes: &[u8], step: usize) -> String {
        let mut stream = Utf8Stream::new();
        let mut text = String::new();
        for piece in bytes.chunks(step) {
            text.push_str(&stream.push(piece));
            assert!(stream.held() <= 3, "holds {} bytes", stream.held());
        }
        text.push_str(&stream.finish());
        assert_eq!(stream.held(), 0);
        text
    }

    #[test]
    fn however_the_bytes_are_cut_the_text_is_the_same() {
        let cases: [&[u8]; 11] = [
            b"",
            b"plain",
            "na\u{ef}ve \u{1f600} \u{65e5}\u{672c}\u{8a9e} \u{1f468}\u{200d}\u{1f469}".as_bytes(),
            b"\xff",
            b"a\xf0\x9f\x98",
            b"a\xf0\x9f\x98b",
            b"\xe6\x97\xe6\x97\xa5",
            b"\xc0\xafx\x80",
            b"\xed\xa0\x80",
            b"\xf4\x90\x80\x80",
            b"\xf0\xf0\x9f\x98\x80\xe2\x82",
        ];
        for bytes in cases {
            for step in 1..=5 {
                let want = String::from_utf8_lossy(bytes);
                assert_eq!(streamed(bytes, step), want, "{bytes:?} in steps of {step}");
            }
        }
    }

    #[test]
    fn nothing_comes_before_a_character_is_complete() {
        let mut stream = Utf8Stream::new();
        let emoji = "\u{1f600}".as_bytes();
        for byte in &emoji[..3] {
            assert_eq!(stream.push(&[*byte]), "");
        }
        assert_eq!(stream.push(&emoji[3..]), "\u{1f600}");
    }
}
