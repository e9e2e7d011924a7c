//! Splits a template into tokens, as Jinja2 does with `trim_blocks` and `lstrip_blocks`.

use std::sync::Arc;

/// Maximum number of tokens in one tag; bounds the depth of an expression's tree.
const MAX_TAG_TOKENS: usize = 1000;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Data(String),
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name(Arc<str>),
    Text(String),
    Int(i128),
    Float(f64),
    Sign(&'static str),
    End,
}

/// Operators and delimiters, longer ones before their prefixes.
const SIGNS: [&str; 26] = [
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}",
    ">", "<", "=", ".", ":", "|", ",", ";",
];

/// A syntax error and its line.
pub(super) struct SyntaxError {
    pub(super) line: u32,
    pub(super) what: String,
}

/// Splits a template into tokens, each with its line.
pub(super) fn tokens(source: &str) -> Result<Vec<(Token, u32)>, SyntaxError> {
    let mut source = source.replace("\r\n", "\n").replace('\r', "\n");
    if source.ends_with('\n') {
        source.pop();
    }
    let mut lexer = Lexer { source: &source, at: 0, line: 1, line_starts: true, out: Vec::new() };
    lexer.run()?;
    let line = lexer.line;
    lexer.out.push((Token::End, line));
    Ok(lexer.out)
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: u32,
    /// Whether the text consumed last ended a line; true at the start of the template.
    line_starts: bool,
    out: Vec<(Token, u32)>,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn fail<T>(&self, what: impl Into<String>) -> Result<T, SyntaxError> {
        Err(SyntaxError { line: self.line, what: what.into() })
    }

    fn push(&mut self, token: Token) {
        self.out.push((token, self.line));
    }

    fn advance(&mut self, bytes: usize) {
        let passed = &self.source[self.at..self.at + bytes];
        self.line += passed.matches('\n').count() as u32;
        if bytes > 0 {
            self.line_starts = passed.ends_with('\n');
        }
        self.at += bytes;
    }

    fn run(&mut self) -> Result<(), SyntaxError> {
        while self.at < self.source.len() {
            let rest = self.rest();
            let opening =
                ["{{", "{%", "{#"].iter().filter_map(|sign| Some((rest.find(sign)?, *sign)));
            let Some((start, sign)) = opening.min_by_key(|(start, _)| *start) else {
                self.push(Token::Data(rest.to_owned()));
                self.at = self.source.len();
                return Ok(());
            };
            let control = rest[start + 2..].chars().next().filter(|c| matches!(c, '-' | '+'));
            self.data(start, sign, control);
            let opened = self.line;
            self.advance(2 + usize::from(control.is_some()));
            match sign {
                "{#" => self.comment(opened)?,
                "{%" if self.raw()? => {}
                "{%" => {
                    self.out.push((Token::BlockBegin, opened));
                    self.tag(true)?;
                }
                _ => {
                    self.out.push((Token::VariableBegin, opened));
                    self.tag(false)?;
                }
            }
        }
        Ok(())
    }

    /// Emits the text before a tag, without the white space that the tag strips.
    fn data(&mut self, len: usize, sign: &str, control: Option<char>) {
        let text = &self.rest()[..len];
        let kept = match control {
            Some('-') => text.trim_end(),
            None if sign != "{{" => self.without_indent(text),
            _ => text,
        };
        if !kept.is_empty() {
            self.push(Token::Data(kept.to_owned()));
        }
        // The stripped white space belongs to the tag, so no line starts after it.
        self.line += text.matches('\n').count() as u32;
        self.at += len;
        self.line_starts = false;
    }

    fn without_indent<'t>(&self, text: &'t str) -> &'t str {
        let line = text.rfind('\n').map_or(0, |at| at + 1);
        let blank = !text[line..].is_empty() && text[line..].trim().is_empty();
        match (line > 0 || self.line_starts) && blank {
            true => &text[..line],
            false => text,
        }
    }

    /// Strips all white space after a tag that ends with `-`, or only the line end if `trims` is
    /// set.
    fn after(&mut self, control: Option<char>, trims: bool) {
        match control {
            Some('-') => {
                let space = self.rest().len() - self.rest().trim_start().len();
                self.advance(space);
            }
            None if trims && self.rest().starts_with('\n') => self.advance(1),
            _ => {}
        }
    }

    fn comment(&mut self, opened: u32) -> Result<(), SyntaxError> {
        let Some(end) = self.rest().find("#}") else {
            self.line = opened;
            return self.fail("a comment does not end");
        };
        let control = self.rest()[..end].chars().next_back().filter(|c| matches!(c, '-' | '+'));
        self.advance(end + 2);
        self.after(control, true);
        Ok(())
    }

    /// Returns whether the tag is `raw`; if so, consumes the text through `endraw`.
    fn raw(&mut self) -> Result<bool, SyntaxError> {
        let tag = self.rest().trim_start();
        let Some(tag) = tag.strip_prefix("raw") else { return Ok(false) };
        let tag = tag.trim_start();
        let control = tag.chars().next().filter(|c| *c == '-');
        let Some(body) = tag[usize::from(control.is_some())..].strip_prefix("%}") else {
            return Ok(false);
        };
        self.advance(self.rest().len() - body.len());
        if control.is_some() {
            self.after(control, false);
        }
        let body = self.rest();
        let mut from = 0;
        while let Some(found) = body[from..].find("{%") {
            let start = from + found;
            from = start + 2;
            let tag = &body[from..];
            let before = tag.chars().next().filter(|c| matches!(c, '-' | '+'));
            let tag = tag[usize::from(before.is_some())..].trim_start();
            let Some(tag) = tag.strip_prefix("endraw") else { continue };
            let tag = tag.trim_start();
            let behind = tag.chars().next().filter(|c| matches!(c, '-' | '+'));
            let Some(rest) = tag[usize::from(behind.is_some())..].strip_prefix("%}") else {
                continue;
            };
            let len = body.len() - rest.len();
            self.data(start, "{%", before);
            self.advance(len - start);
            self.after(behind, true);
            return Ok(true);
        }
        self.fail("raw does not end")
    }

    /// Reads the tokens inside a tag, and its end.
    fn tag(&mut self, block: bool) -> Result<(), SyntaxError> {
        let first = self.out.len();
        let mut open: Vec<&'static str> = Vec::new();
        loop {
            if self.out.len() - first > MAX_TAG_TOKENS {
                return self.fail(format!("a tag of more than {MAX_TAG_TOKENS} words"));
            }
            let space = self.rest().len() - self.rest().trim_start().len();
            self.advance(space);
            let rest = self.rest();
            let Some(c) = rest.chars().next() else {
                return self.fail("a tag does not end");
            };
            if open.is_empty() && self.tag_end(block) {
                return Ok(());
            }
            if c.is_ascii_digit() {
                self.number()?;
            } else if c == '\'' || c == '"' {
                self.string(c)?;
            } else if c.is_alphanumeric() || c == '_' {
                let len = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
                let name = &rest[..len.unwrap_or(rest.len())];
                self.push(Token::Name(name.into()));
                self.advance(name.len());
            } else {
                let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) else {
                    return self.fail(format!("unexpected {c:?}"));
                };
                let closing = match *sign {
                    "(" => Some(")"),
                    "[" => Some("]"),
                    "{" => Some("}"),
                    _ => None,
                };
                open.extend(closing);
                if matches!(*sign, ")" | "]" | "}") && open.pop() != Some(*sign) {
                    return self.fail(format!("unexpected {sign:?}"));
                }
                self.push(Token::Sign(sign));
                self.advance(sign.len());
            }
        }
    }

    /// Returns whether the tag ends here; if so, consumes its end.
    fn tag_end(&mut self, block: bool) -> bool {
        let rest = self.rest();
        let control = rest.chars().next().filter(|c| *c == '-' || (*c == '+' && block));
        let end = if block { "%}" } else { "}}" };
        if !rest[usize::from(control.is_some())..].starts_with(end) {
            return false;
        }
        self.push(if block { Token::BlockEnd } else { Token::VariableEnd });
        self.advance(2 + usize::from(control.is_some()));
        self.after(control, block);
        true
    }

    fn number(&mut self) -> Result<(), SyntaxError> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let digits = |from: usize| {
            let mut at = from;
            while at < bytes.len()
                && (bytes[at].is_ascii_digit()
                    || (bytes[at] == b'_'
                        && at > from
                        && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)))
            {
                at += 1;
            }
            at
        };
        let whole = digits(0);
        let mut end = whole;
        if bytes.get(end) == Some(&b'.') && digits(end + 1) > end + 1 {
            end = digits(end + 1);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + sign);
            if exponent > end + 1 + sign {
                end = exponent;
            }
        }
        let after_dot = self.source[..self.at].ends_with('.');
        if end > whole && !after_dot {
            let text = rest[..end].replace('_', "");
            let number = text.parse().map_err(|_| SyntaxError {
                line: self.line,
                what: format!("{text:.40} is not a number"),
            })?;
            self.push(Token::Float(number));
            self.advance(end);
            return Ok(());
        }
        let (radix, from, len) = match bytes.get(..2).unwrap_or_default() {
            [b'0', b'x' | b'X'] => (16, 2, rest.len()),
            [b'0', b'o' | b'O'] => (8, 2, rest.len()),
            [b'0', b'b' | b'B'] => (2, 2, rest.len()),
            [b'0', ..] => (1, 0, whole),
            _ => (10, 0, whole),
        };
        let is_digit = |c: char| c == '_' || if radix == 1 { c == '0' } else { c.is_digit(radix) };
        let end = rest[from..len].find(|c| !is_digit(c)).map_or(len, |at| from + at);
        let text = rest[from..end].trim_end_matches('_');
        let end = from + text.len();
        let digits = text.replace('_', "");
        let number = match radix {
            1 => Ok(0),
            radix => i128::from_str_radix(&digits, radix),
        };
        match number {
            Ok(number) => self.push(Token::Int(number)),
            Err(_) => {
                return self.fail(format!("{:.60}: an integer beyond 128 bits", &rest[..end]));
            }
        }
        self.advance(end);
        Ok(())
    }

    fn string(&mut self, quote: char) -> Result<(), SyntaxError> {
        let rest = &self.rest()[1..];
        let mut escaped = false;
        let end = rest.char_indices().find(|(_, c)| {
            let ends = *c == quote && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        });
        let Some((end, _)) = end else {
            return self.fail("a text in quotes does not end");
        };
        let text = match unescape(&rest[..end]) {
            Ok(text) => text,
            Err(what) => return self.fail(what),
        };
        self.push(Token::Text(text));
        self.advance(end + 2);
        Ok(())
    }
}

/// Replaces the escapes of a string literal, by Python's rules.
fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let Some(kind) = chars.next() else { return Err("a backslash at the end".into()) };
        let hex = match kind {
            '\n' => continue,
            'n' => '\n'.into(),
            't' => '\t'.into(),
            'r' => '\r'.into(),
            'a' => '\u{7}'.into(),
            'b' => '\u{8}'.into(),
            'f' => '\u{c}'.into(),
            'v' => '\u{b}'.into(),
            '\\' | '\'' | '"' => kind.into(),
            '0'..='7' => {
                let mut code = kind.to_digit(8).unwrap_or(0);
                for _ in 0..2 {
                    let Some(digit) = chars.peek().and_then(|c| c.to_digit(8)) else { break };
                    code = code * 8 + digit;
                    chars.next();
                }
                char::from_u32(code)
            }
            'N' => return Err("characters by name, \\N{..}, are not supported".into()),
            'x' | 'u' | 'U' => {
                let digits = match kind {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let mut code = 0u32;
                for _ in 0..digits {
                    let digit = chars.next().and_then(|c| c.to_digit(16));
                    let digit = digit.ok_or_else(|| format!("\\{kind} takes {digits} digits"))?;
                    code = (code << 4) | digit;
                }
                char::from_u32(code)
            }
            c if c.is_ascii() => {
                out.push('\\');
                Some(c)
            }
            // Jinja2 has already replaced the character with an escape, whose backslash this one
            // escapes.
            c => {
                let code = u32::from(c);
                out.push_str(&match code {
                    0..=0xff => format!("\\x{code:02x}"),
                    0x100..=0xffff => format!("\\u{code:04x}"),
                    _ => format!("\\U{code:08x}"),
                });
                continue;
            }
        };
        out.push(hex.ok_or("an escape that is not a character")?);
    }
    Ok(out)
}
