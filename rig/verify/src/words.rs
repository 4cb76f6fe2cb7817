//! What was observed, in words: one line, bounded.

use plugpull_record::Class;

use crate::look::Sighting;

/// Longest text of a breach, in bytes.
pub(crate) const MAX_WORDS_BYTES: usize = 800;
const CUT_OFF: &str = " [...]";

/// Joins the parts that are not blank into one line, and cuts it off if it is too long.
pub(crate) fn bounded<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut line = String::new();
    for part in parts {
        let mut separator = if line.is_empty() { "" } else { ": " };
        for word in part.split(|c: char| c.is_whitespace() || c.is_control()) {
            if word.is_empty() {
                continue;
            }
            let needed = separator.len().saturating_add(word.len());
            let room = MAX_WORDS_BYTES - CUT_OFF.len();
            if line.len().saturating_add(needed) > room {
                if line.is_empty() {
                    line.extend(word.chars().take(room / 4));
                }
                line.push_str(CUT_OFF);
                return line;
            }
            line.push_str(separator);
            line.push_str(word);
            separator = " ";
        }
    }
    line
}

/// An error number as the C library spells it.
pub(crate) fn error_words(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

/// What was seen at the place of a record.
pub(crate) fn sighting_words(sighting: &Sighting) -> String {
    match sighting {
        Sighting::Read(Class::Intact) => "the whole record is there".to_owned(),
        Sighting::Read(Class::Absent) => "only zeros".to_owned(),
        Sighting::Read(class) => class.to_string(),
        Sighting::PastEnd { end_bytes } => {
            format!("the object ends at byte {end_bytes}, before the record")
        }
        Sighting::Missing => "the file is not there".to_owned(),
        Sighting::Unlisted => "the object is not among those observed".to_owned(),
        Sighting::Unreadable { from_bytes, errno } => {
            format!(
                "reading fails at byte {from_bytes}: {}",
                error_words(*errno)
            )
        }
        Sighting::NotReached => "not read".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_one_line_without_blanks_at_the_ends() {
        assert_eq!(
            bounded(["mount failed", " a\n\tb ", "", "\u{7}c"]),
            "mount failed: a b: c"
        );
        assert_eq!(bounded([]), "");
    }

    #[test]
    fn words_of_any_length_are_cut_off_between_characters() {
        for text in ["x ".repeat(5000), "\u{1F50C}".repeat(5000)] {
            let line = bounded([text.as_str()]);
            assert!(
                line.len() <= MAX_WORDS_BYTES && line.ends_with(CUT_OFF),
                "{line}"
            );
        }
        let fits = "y".repeat(MAX_WORDS_BYTES - CUT_OFF.len());
        assert_eq!(bounded([fits.as_str()]), fits);
    }

    #[test]
    fn an_error_number_that_does_not_exist_has_words() {
        assert!(!error_words(-1).is_empty() && !error_words(i32::MAX).is_empty());
    }
}
