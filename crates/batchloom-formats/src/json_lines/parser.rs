//! The parser of a line: the numbers of some keys are handed on, and everything else is passed over.
//!
//! Promises: numbers have the value that JSON gives them, whole ones exactly up to 64 bits; a line that is no object, or in
//! which a wanted value is neither a number nor a list of numbers, is an error with the place in the line. Values of other
//! keys are passed over by their brackets and quotes, and not checked otherwise.

/// A number of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Whole(i64),
    Real(f64),
    Truth(bool),
    Null,
}

/// The keys whose values are wanted.
#[derive(Debug)]
pub(crate) struct WantedKeys {
    /// The keys on the way to each value, outermost first.
    paths: Vec<Vec<Vec<u8>>>,
}

impl WantedKeys {
    /// Keys by name; a dot leads into an object.
    pub(crate) fn new(names: &[String]) -> Self {
        let path = |name: &String| name.split('.').map(|key| key.as_bytes().to_vec()).collect();
        Self { paths: names.iter().map(path).collect() }
    }
}

/// A receiver of values.
pub(crate) trait Sink {
    /// A number, the value of the key in a place or an element of its list.
    fn number(&mut self, key: usize, number: Number) -> Result<(), &'static str>;

    /// The value of a key begins: a list if `is_list`, otherwise one number.
    fn begin(&mut self, key: usize, is_list: bool) -> Result<(), &'static str>;
}

/// A line that cannot be parsed: the place in the line, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrongLine {
    pub(crate) place: usize,
    pub(crate) reason: &'static str,
}

/// Parses a line, an object, and hands on the values of wanted keys.
pub(crate) fn parse_line(line: &[u8], wanted: &WantedKeys, sink: &mut impl Sink) -> Result<(), WrongLine> {
    let all: Vec<usize> = (0..wanted.paths.len()).collect();
    let mut parser = Parser { line, place: 0, wanted, sink };
    let parsed = parser.object(&all, 0);
    let place = parser.place;
    parsed.map_err(|reason| WrongLine { place, reason })?;
    parser.skip_blanks();
    match parser.place == line.len() {
        true => Ok(()),
        false => Err(WrongLine { place: parser.place, reason: "there is more behind its object" }),
    }
}

struct Parser<'a, S> {
    line: &'a [u8],
    place: usize,
    wanted: &'a WantedKeys,
    sink: &'a mut S,
}

const CUT: &str = "it ends within a value";

impl<S: Sink> Parser<'_, S> {
    fn skip_blanks(&mut self) {
        while self.line.get(self.place).is_some_and(u8::is_ascii_whitespace) {
            self.place += 1;
        }
    }

    fn peek(&mut self) -> Result<u8, &'static str> {
        self.skip_blanks();
        self.line.get(self.place).copied().ok_or(CUT)
    }

    fn expect(&mut self, byte: u8, reason: &'static str) -> Result<(), &'static str> {
        if self.peek()? != byte {
            return Err(reason);
        }
        self.place += 1;
        Ok(())
    }

    /// Parses an object. `near` lists the wanted paths that lead into it.
    fn object(&mut self, near: &[usize], depth: usize) -> Result<(), &'static str> {
        self.expect(b'{', "it is no object in braces")?;
        if self.peek()? == b'}' {
            self.place += 1;
            return Ok(());
        }
        loop {
            let key = self.text()?;
            self.expect(b':', "a key is not followed by a colon")?;
            let paths = &self.wanted.paths;
            let is_next = |&&path: &&usize| {
                paths[path].get(depth).is_some_and(|part| is_key(&self.line[key.clone()], part))
            };
            let mut found = near.iter().filter(is_next).copied();
            match (found.next(), found.next()) {
                (None, _) => self.skip_value()?,
                (Some(path), None) if paths[path].len() == depth + 1 => self.value(path)?,
                (Some(first), second) => {
                    let rest: Vec<usize> = [Some(first), second].into_iter().flatten().chain(found).collect();
                    match rest.iter().any(|&path| paths[path].len() == depth + 1) {
                        true => return Err("a wanted key holds other wanted keys"),
                        false => self.object(&rest, depth + 1)?,
                    }
                }
            }
            match self.peek()? {
                b',' => self.place += 1,
                b'}' => {
                    self.place += 1;
                    return Ok(());
                }
                _ => return Err("values are not separated by commas"),
            }
        }
    }

    /// The value of a wanted key: a number, or a list of numbers.
    fn value(&mut self, key: usize) -> Result<(), &'static str> {
        if self.peek()? != b'[' {
            self.sink.begin(key, false)?;
            let number = self.number()?;
            return self.sink.number(key, number);
        }
        self.sink.begin(key, true)?;
        self.place += 1;
        if self.peek()? == b']' {
            self.place += 1;
            return Ok(());
        }
        loop {
            self.skip_blanks();
            let number = self.number()?;
            self.sink.number(key, number)?;
            match self.peek()? {
                b',' => self.place += 1,
                b']' => {
                    self.place += 1;
                    return Ok(());
                }
                _ => return Err("elements are not separated by commas"),
            }
        }
    }

    fn number(&mut self) -> Result<Number, &'static str> {
        let rest = &self.line[self.place..];
        let (is_negative, first) = match rest.first().ok_or(CUT)? {
            b'-' => (true, 1),
            b'0'..=b'9' => (false, 0),
            b't' if rest.starts_with(b"true") => return Ok(self.word(4, Number::Truth(true))),
            b'f' if rest.starts_with(b"false") => return Ok(self.word(5, Number::Truth(false))),
            b'n' if rest.starts_with(b"null") => return Ok(self.word(4, Number::Null)),
            // The encoder of Python writes these.
            b'N' if rest.starts_with(b"NaN") => return Ok(self.word(3, Number::Real(f64::NAN))),
            b'I' if rest.starts_with(b"Infinity") => return Ok(self.word(8, Number::Real(f64::INFINITY))),
            b'"' => return Err("a text is no number"),
            b'{' => return Err("an object is no number"),
            b'[' => return Err("a list in a list is no number"),
            _ => return Err("this is no value"),
        };
        if is_negative && rest[1..].starts_with(b"Infinity") {
            return Ok(self.word(9, Number::Real(f64::NEG_INFINITY)));
        }
        let (mut value, mut place) = (0_u64, first);
        let mut is_exact = true;
        while let Some(digit) =
            rest.get(place).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10)
        {
            let next = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            is_exact &= place < first + 18
                || value.checked_mul(10).is_some_and(|value| value.checked_add(u64::from(digit)).is_some());
            (value, place) = (next, place + 1);
        }
        if place == first {
            return Err("a sign is not followed by digits");
        }
        if matches!(rest.get(place), Some(b'.' | b'e' | b'E')) {
            return self.real(rest);
        }
        let signed = match is_negative {
            false => i64::try_from(value).ok(),
            true if value == 1 << 63 => Some(i64::MIN),
            true => i64::try_from(value).ok().map(|value| -value),
        };
        let whole = signed.filter(|_| is_exact).ok_or("a whole number takes more than 64 bits")?;
        self.place += place;
        Ok(Number::Whole(whole))
    }

    fn word(&mut self, length: usize, number: Number) -> Number {
        self.place += length;
        number
    }

    fn real(&mut self, rest: &[u8]) -> Result<Number, &'static str> {
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        let end = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let text = std::str::from_utf8(&rest[..end]).map_err(|_| "this is no number")?;
        let value = text.parse().map_err(|_| "this is no number")?;
        self.place += end;
        Ok(Number::Real(value))
    }

    /// A text in quotes; returns where it lies.
    fn text(&mut self) -> Result<std::ops::Range<usize>, &'static str> {
        self.expect(b'"', "a key is not in quotes")?;
        let start = self.place;
        loop {
            let found = memchr::memchr2(b'"', b'\\', &self.line[self.place..]).ok_or("a text has no end")?;
            self.place += found;
            if self.line[self.place] == b'"' {
                self.place += 1;
                return Ok(start..self.place - 1);
            }
            self.place += 2;
            if self.place > self.line.len() {
                return Err("a text has no end");
            }
        }
    }

    /// Passes over a value of any kind.
    fn skip_value(&mut self) -> Result<(), &'static str> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.text()?;
                }
                b'{' | b'[' => {
                    depth += 1;
                    self.place += 1;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.place += 1;
                }
                b',' | b':' if depth > 0 => self.place += 1,
                b'0'..=b'9' | b'-' | b't' | b'f' | b'n' | b'N' | b'I' => {
                    let is_end =
                        |byte: &u8| matches!(byte, b',' | b'}' | b']' | b':') || byte.is_ascii_whitespace();
                    let rest = &self.line[self.place..];
                    self.place += rest.iter().position(is_end).unwrap_or(rest.len());
                }
                _ => return Err("this is no value"),
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }
}

/// Returns true if the text in a line is a key; escapes are resolved.
fn is_key(text: &[u8], key: &[u8]) -> bool {
    if !text.contains(&b'\\') {
        return text == key;
    }
    let quoted = [b"\"", text, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).is_ok_and(|text| text.as_bytes() == key)
}
