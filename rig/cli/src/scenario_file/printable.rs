//! Text of a user's file inside a one-line message.

/// Longer echoes are cut: a message is one line that a person reads.
const MAX_ECHO_CHARS: usize = 80;
/// The longest sentence of a message.
const MAX_REASON_CHARS: usize = 600;

/// `text` without control characters: no line break, no terminal escape. Used for the file's own
/// name, which is never cut.
pub(crate) fn printable(text: &str) -> String {
    text.chars().flat_map(escape).collect()
}

/// [`printable`], cut to what a person reads: for keys and values.
pub(crate) fn echo(text: &str) -> String {
    cut(text, MAX_ECHO_CHARS)
}

/// [`printable`], cut to one readable line: for sentences that hold a user's words.
pub(crate) fn sentence(text: &str) -> String {
    cut(text, MAX_REASON_CHARS)
}

/// The words of the system without their number.
pub(crate) fn words_of(error: &std::io::Error) -> String {
    let words = error.to_string();
    match words.split_once(" (os error") {
        Some((words, _)) => words.to_owned(),
        None => words,
    }
}

fn cut(text: &str, most: usize) -> String {
    let mut shown: String = text.chars().take(most).flat_map(escape).collect();
    if text.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown
}

/// Escapes what would break the line, drive the terminal or hide in the text; leaves the rest.
fn escape(c: char) -> impl Iterator<Item = char> {
    let unseen = c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    let (escaped, plain) = if unseen {
        (Some(c.escape_default()), None)
    } else {
        (None, Some(c))
    };
    escaped.into_iter().flatten().chain(plain)
}
