//! The valid word nearest to a wrong one.

use std::cmp::Ordering;

/// Words at least this alike are offered as what was meant.
const CLOSE: f64 = 0.6;
/// A part of a valid word this long is offered as what was meant.
const MIN_PART_CHARS: usize = 4;
/// Longer words are compared with nothing.
const MAX_WORD_BYTES: usize = 256;

fn normal(word: &str) -> String {
    word.chars()
        .map(|c| match c {
            '-' | ' ' | '.' => '_',
            c => c.to_ascii_lowercase(),
        })
        .collect()
}

struct Likeness {
    /// At least [`CLOSE`] where the word is a part of the valid one.
    score: f64,
    edits: f64,
    prefix: f64,
}

fn likeness(word: &str, valid: &str) -> Likeness {
    let (word, valid) = (normal(word), normal(valid));
    let edits = strsim::normalized_damerau_levenshtein(&word, &valid);
    let is_part = word.chars().count() >= MIN_PART_CHARS && valid.contains(&word);
    Likeness {
        score: if is_part { edits.max(CLOSE) } else { edits },
        edits,
        prefix: strsim::jaro_winkler(&word, &valid),
    }
}

/// The valid word that was probably meant.
pub(crate) fn close<'a>(word: &str, valid: &[&'a str]) -> Option<&'a str> {
    // The work grows with the length, and a long word is not a slip of the pen.
    if word.len() > MAX_WORD_BYTES {
        return None;
    }
    let nearer = |(a, _): &(Likeness, &str), (b, _): &(Likeness, &str)| {
        let order = |a: f64, b: f64| a.partial_cmp(&b).unwrap_or(Ordering::Equal);
        order(a.score, b.score)
            .then_with(|| order(a.edits, b.edits))
            .then_with(|| order(a.prefix, b.prefix))
    };
    let (best, nearest) = valid
        .iter()
        .map(|valid| (likeness(word, valid), *valid))
        .max_by(nearer)?;
    (best.score >= CLOSE).then_some(nearest)
}

/// What to write instead of `word`: the one word that was probably meant, or else all of them.
/// `noun` is what they are, e.g. `keys`.
pub(crate) fn hint(word: &str, valid: &[&str], noun: &str) -> String {
    if let Some(meant) = close(word, valid) {
        return format!("did you mean `{meant}`?");
    }
    if valid.is_empty() {
        return format!("there are no valid {noun}");
    }
    let quoted: Vec<String> = valid.iter().map(|valid| format!("`{valid}`")).collect();
    format!("valid {noun}: {}", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVE: [&str; 13] = [
        "cache",
        "flush",
        "fua",
        "write_cache_reported",
        "logical_block_bytes",
        "atomic_write_bytes",
        "atomic_boundary_bytes",
        "survivors",
        "in_flight",
        "cache_bytes",
        "discard_reads",
        "service",
        "faults",
    ];

    #[test]
    fn a_slip_of_the_pen_finds_its_key() {
        for (word, meant) in [
            ("cahce", "cache"),
            ("cach", "cache"),
            ("logical-block-bytes", "logical_block_bytes"),
            ("logical_block_size", "logical_block_bytes"),
            ("LOGICAL_BLOCK", "logical_block_bytes"),
            ("cache_size", "cache_bytes"),
            ("atomic_write", "atomic_write_bytes"),
            ("fau", "fua"),
            ("fault", "faults"),
        ] {
            assert_eq!(close(word, &DRIVE), Some(meant), "for {word}");
        }
    }

    #[test]
    fn one_letter_off_beats_being_a_part() {
        assert_eq!(
            close("volatile", &["volatile-512", "voatile"]),
            Some("voatile")
        );
        assert_eq!(
            close("records", &["record_bytes", "records_per_writer"]),
            Some("records_per_writer")
        );
    }

    #[test]
    fn a_word_like_none_gets_the_whole_list() {
        assert_eq!(close("colour", &DRIVE), None);
        assert!(hint("colour", &DRIVE, "keys").starts_with("valid keys: `cache`, `flush`, "));
        assert!(hint("x", &DRIVE, "keys").contains("`write_cache_reported`"));
    }
}
