//! Where keys and values stand in a TOML text.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The line (from 1) of the byte at `offset`.
pub(super) fn line_at(text: &[u8], offset: usize) -> usize {
    let before = &text[..offset.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// The line of the last text before `offset` that is neither blank nor a comment of its own.
pub(super) fn line_before(text: &str, offset: usize) -> usize {
    let before = text.get(..offset).unwrap_or(text);
    let lines: Vec<&str> = before.split('\n').collect();
    lines
        .iter()
        .rposition(|line| {
            let line = line.trim_start();
            !line.is_empty() && !line.starts_with('#')
        })
        .map_or(1, |index| index + 1)
}

/// Where brackets or braces are nested deeper than `most`. The parser bounds the nesting of braces
/// and the parts of a key each by itself; their product overflows its stack. So this is asked
/// before anything is parsed.
pub(super) fn too_deep(text: &str, most: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'#' => at += line_length(&bytes[at..]),
            quote @ (b'"' | b'\'') => {
                at = after_string(bytes, at, *quote);
                continue;
            }
            b'[' | b'{' => {
                depth += 1;
                if depth > most {
                    return Some(at);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    None
}

fn line_length(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(bytes.len())
}

/// The offset behind the string that begins at `at`; an unclosed one ends with its line, or with
/// the text.
fn after_string(bytes: &[u8], at: usize, quote: u8) -> usize {
    let long = bytes[at..].starts_with(&[quote; 3]);
    let closing = [quote; 3];
    let closing = if long { &closing[..] } else { &closing[..1] };
    let mut at = at + closing.len();
    while at < bytes.len() {
        if bytes[at..].starts_with(closing) {
            return at + closing.len();
        }
        match bytes[at] {
            b'\n' if !long => return at,
            b'\\' if quote == b'"' => at += 2,
            _ => at += 1,
        }
    }
    at
}

/// The line up to which the text must be read for the parser to say `message`: for the few errors
/// (a key of too many parts) that it gives no place.
pub(super) fn first_failing_line(text: &str, message: &str) -> usize {
    let ends: Vec<usize> = text
        .match_indices('\n')
        .map(|(at, _)| at + 1)
        .chain([text.len()])
        .collect();
    let fails = |end: usize| {
        let (_, errors) = DeTable::parse_recoverable(&text[..end]);
        errors.iter().any(|error| error.message() == message)
    };
    (ends.partition_point(|end| !fails(*end)) + 1).min(ends.len())
}

/// A parsed document that knows where everything stands.
pub(super) struct Document<'t> {
    text: &'t str,
    root: Spanned<DeTable<'t>>,
}

/// A key, a value or an element found in the document. (A table that a dotted key or a deeper header
/// opens has the span of its key: which of the two was meant follows from the message.)
pub(super) struct Spot<'d> {
    /// The keys that lead here. Elements of arrays have the path of their array.
    pub(super) path: Vec<String>,
    /// The value.
    pub(super) value: &'d DeValue<'d>,
    /// The value's span.
    pub(super) span: Range<usize>,
}

impl<'t> Document<'t> {
    pub(super) fn parse(text: &'t str) -> Result<Self, toml::de::Error> {
        DeTable::parse(text).map(|root| Document { text, root })
    }

    pub(super) fn root(&self) -> &DeTable<'t> {
        self.root.get_ref()
    }

    pub(super) fn line(&self, offset: usize) -> usize {
        line_at(self.text.as_bytes(), offset)
    }

    /// The text of a span.
    pub(super) fn slice(&self, span: Range<usize>) -> &'t str {
        self.text.get(span).unwrap_or_default()
    }

    /// The text with something else at `span`.
    pub(super) fn with(&self, span: Range<usize>, replacement: &str) -> String {
        let before = self.text.get(..span.start).unwrap_or_default();
        let after = self.text.get(span.end..).unwrap_or_default();
        [before, replacement, after].concat()
    }

    /// The line and the text of `schema` where it is an integer other than `known`.
    pub(super) fn foreign_schema(&self, known: u32) -> Option<(usize, &'t str)> {
        let (_, value) = entry(self.root(), "schema")?;
        let integer = value.get_ref().as_integer()?;
        let is_known = i128::from_str_radix(integer.as_str(), integer.radix())
            .is_ok_and(|number| number == i128::from(known));
        (!is_known).then(|| (self.line(value.span().start), self.slice(value.span())))
    }

    /// What stands at exactly this span; the deepest, where one header opens several tables.
    pub(super) fn spot(&self, span: &Range<usize>) -> Option<Spot<'_>> {
        let mut path = Vec::new();
        spot_in_table(self.root(), span, &mut path)
    }

    /// The value at a path of keys.
    pub(super) fn value(&self, path: &[&str]) -> Option<&Spanned<DeValue<'t>>> {
        let (last, parents) = path.split_last()?;
        let mut table = self.root();
        for key in parents {
            table = entry(table, key)?.1.get_ref().as_table()?;
        }
        Some(entry(table, last)?.1)
    }

    /// The line of the key at a dotted path; of the nearest table around it, where the text does
    /// not hold it. Names may hold dots themselves: of several readings the one that finds more
    /// of the path is taken.
    pub(super) fn line_of_path(&self, dotted: &str) -> usize {
        let found = follow(self.root(), dotted);
        found.map_or(1, |found| self.line(found.offset))
    }
}

/// The entry called `key`.
pub(super) fn entry<'d, 't>(
    table: &'d DeTable<'t>,
    key: &str,
) -> Option<(
    &'d Spanned<std::borrow::Cow<'t, str>>,
    &'d Spanned<DeValue<'t>>,
)> {
    table.iter().find(|(name, _)| name.get_ref() == key)
}

fn spot_in_table<'d>(
    table: &'d DeTable<'d>,
    span: &Range<usize>,
    path: &mut Vec<String>,
) -> Option<Spot<'d>> {
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        if let Some(found) = spot_in_value(value, span, path) {
            return Some(found);
        }
        if key.span() == *span {
            return Some(Spot {
                path: path.clone(),
                value: value.get_ref(),
                span: value.span(),
            });
        }
        path.pop();
    }
    None
}

fn spot_in_value<'d>(
    value: &'d Spanned<DeValue<'d>>,
    span: &Range<usize>,
    path: &mut Vec<String>,
) -> Option<Spot<'d>> {
    let inner = match value.get_ref() {
        DeValue::Table(table) => spot_in_table(table, span, path),
        DeValue::Array(array) => array
            .iter()
            .find_map(|element| spot_in_value(element, span, path)),
        _ => None,
    };
    if inner.is_some() {
        return inner;
    }
    (value.span() == *span).then(|| Spot {
        path: path.clone(),
        value: value.get_ref(),
        span: value.span(),
    })
}

struct Followed {
    offset: usize,
    /// Bytes of the path that were found.
    found: usize,
}

fn follow(table: &DeTable<'_>, dotted: &str) -> Option<Followed> {
    table
        .iter()
        .filter_map(|(key, value)| {
            let rest = dotted.strip_prefix(key.get_ref().as_ref())?;
            let here = Followed {
                offset: key.span().start,
                found: key.get_ref().len(),
            };
            if rest.is_empty() {
                return Some(here);
            }
            let rest = rest.strip_prefix('.')?;
            let deeper = value
                .get_ref()
                .as_table()
                .and_then(|table| follow(table, rest))
                .map(|deeper| Followed {
                    offset: deeper.offset,
                    found: here.found + 1 + deeper.found,
                });
            Some(deeper.unwrap_or(here))
        })
        .max_by_key(|followed| followed.found)
}

/// A key that stands in its table for the second time.
pub(super) struct Duplicate {
    /// The path of the table.
    pub(super) table: Vec<String>,
    /// The key.
    pub(super) key: String,
    /// Where the first one begins, where it was found.
    pub(super) first: Option<usize>,
}

/// Tells in which table the key at `span` stands, and where its first one is. The parser only
/// tells the place of the second: so the second is renamed and the text read again.
pub(super) fn duplicate(text: &str, span: &Range<usize>) -> Option<Duplicate> {
    let raw = text.get(span.clone())?;
    let mut marker = "second".to_owned();
    while text.contains(&marker) {
        marker.push('-');
    }
    let line_end = text[span.end..]
        .find('\n')
        .map_or(text.len(), |length| span.end + length);
    // Without what follows, later repetitions cannot be taken for the first; a table in braces
    // over several lines needs what follows.
    let tails = [&text[span.end..line_end], &text[span.end..]];
    let named = format!("{raw} = 0");
    let key = DeTable::parse(&named)
        .ok()
        .and_then(|table| Some(table.get_ref().keys().next()?.get_ref().to_string()))?;
    let mut found: Option<Duplicate> = None;
    for tail in tails {
        let edited = [&text[..span.start], &marker, tail].concat();
        let (tree, _) = DeTable::parse_recoverable(&edited);
        let mut table = Vec::new();
        if let Some(parent) = parent_of(tree.get_ref(), &marker, &mut table) {
            let first = entry(parent, &key)
                .map(|(first, _)| first.span().start)
                .filter(|first| *first < span.start);
            let complete = first.is_some();
            let duplicate = Duplicate {
                table,
                key: key.clone(),
                first,
            };
            if complete {
                return Some(duplicate);
            }
            found.get_or_insert(duplicate);
        }
    }
    found
}

fn parent_of<'d, 't>(
    table: &'d DeTable<'t>,
    wanted: &str,
    path: &mut Vec<String>,
) -> Option<&'d DeTable<'t>> {
    if entry(table, wanted).is_some() {
        return Some(table);
    }
    for (key, value) in table {
        path.push(key.get_ref().to_string());
        let found = match value.get_ref() {
            DeValue::Table(table) => parent_of(table, wanted, path),
            DeValue::Array(array) => array
                .iter()
                .filter_map(|element| element.get_ref().as_table())
                .find_map(|table| parent_of(table, wanted, path)),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
        path.pop();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_is_counted_outside_of_strings_and_comments() {
        for shallow in [
            "a = [[1]] # [[[",
            "a = \"[[[\" # {{{",
            "a = '[[[' \nb = '\\'\nc = [[1]]",
            "a = \"\"\"\n[[[ \\\"\"\" [[[ \"\"\"\"\"\nb = [[1]]",
            "a = \'\'\'\n[[[ \\\'\'\'\nb = [[1]]",
            "a = \"\\\"[[[\"",
            "[[cells]]\n[[cells]]\na = {b = 1}",
            "a = \"[[[",
            "a = \"\\",
        ] {
            assert_eq!(too_deep(shallow, 2), None, "{shallow}");
        }
        assert_eq!(too_deep("a = [{b = [1]}]", 2), Some(10));
        assert_eq!(too_deep("a = '' # x\nb = \"\"\"\"\"\" [[{}]]", 2), Some(24));
    }
}
