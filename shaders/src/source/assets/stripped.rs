//! Strips comments and indentation from embedded shader sources in browser builds, to reduce the
//! size of the download. Line breaks are kept, so that line numbers in errors are unchanged.

/// Returns the length of a stripped text in bytes.
pub(super) const fn length(text: &str) -> usize {
    strip(text.as_bytes(), &mut [], false)
}

/// Returns a stripped text, which has `N` bytes.
pub(super) const fn bytes<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [0; N];
    strip(text.as_bytes(), &mut out, true);
    out
}

/// Returns the number of bytes that remain; stores them in `out` if `store` is set.
const fn strip(text: &[u8], out: &mut [u8], store: bool) -> usize {
    let (mut at, mut count, mut in_line) = (0, 0, false);
    while at < text.len() {
        let byte = text[at];
        if byte == b'/' && at + 1 < text.len() && text[at + 1] == b'/' {
            // WGSL has no strings, so that this is always a comment.
            while at < text.len() && text[at] != b'\n' {
                at += 1;
            }
            continue;
        }
        if byte != b' ' || in_line {
            if store {
                out[count] = byte;
            }
            count += 1;
        }
        in_line = byte != b'\n' && (in_line || byte != b' ');
        at += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_and_comments_go() {
        const TEXT: &str = "// é\n#import a\n    let x = a / b; // c\n\n  }\n";
        const LEFT: [u8; length(TEXT)] = bytes(TEXT);
        assert_eq!(std::str::from_utf8(&LEFT).unwrap(), "\n#import a\nlet x = a / b; \n\n}\n");
        for (name, path, text) in super::super::ASSETS {
            let mut left = vec![0; length(text)];
            strip(text.as_bytes(), &mut left, true);
            let left = String::from_utf8(left).unwrap();
            assert_eq!(left.lines().count(), text.lines().count(), "{name}");
            let words = |text: &str| {
                let code = text.lines().flat_map(|line| line.split("//").next());
                code.flat_map(|line| line.split_whitespace().map(str::to_owned)).collect::<Vec<_>>()
            };
            assert_eq!(words(&left), words(text), "{path}");
        }
    }
}
