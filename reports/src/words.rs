//! Findings, numbers and times as people read them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plugpull_model::verdict::{Detection, Fate, Finding, FindingKind};

/// One finding in one sentence: the object, what is wrong with it, where the
/// cut was, whether the stack said so, and the cause.
#[must_use]
pub fn finding_in_words(finding: &Finding) -> String {
    let breach = &finding.breach;
    let mut words = String::new();
    match &breach.record {
        Some(record) => {
            let _ = write!(
                words,
                "record {} of stream {} ({}), ",
                record.sequence, record.stream, breach.object
            );
            if record.version != 1 {
                let _ = write!(words, "version {}, ", record.version);
            }
            match (breach.expected, breach.acknowledged_at) {
                (Fate::Required, Some(at)) => {
                    let _ = write!(words, "acknowledged at event {at}, ");
                }
                (Fate::Required, None) => words.push_str("acknowledged, "),
                (Fate::Permitted, _) => words.push_str("issued and not acknowledged, "),
                (Fate::Forbidden, _) => words.push_str("not issued before the cut, "),
            }
        }
        None => words.push_str(match breach.object.as_str() {
            "file system" => "the file system ",
            "device" => "the device ",
            _ => "",
        }),
    }
    if breach.record.is_none() && words.is_empty() {
        let _ = write!(words, "{} ", breach.object);
    }
    words.push_str(what_is_wrong(breach.kind));
    if breach.newer_survives {
        words.push_str(", while a later record of its stream is there,");
    }
    let _ = write!(words, " after a cut at event {}", finding.cut);
    if breach.after_recovery {
        words.push_str(", once the recovered stack was used again");
    }
    let observed = one_line(&breach.observed);
    if !observed.is_empty() {
        let _ = write!(words, ": {observed}");
    }
    if let Some(offset) = breach.offset {
        let _ = write!(words, "; byte {offset}");
        if let Some(sector) = breach.sector {
            let _ = write!(words, ", sector {sector}");
        }
    } else if let Some(sector) = breach.sector {
        let _ = write!(words, "; sector {sector}");
    }
    words.push_str(match breach.detection {
        Detection::Detected => "; detected by the stack",
        Detection::Silent => "; silent",
    });
    let _ = write!(words, "; cause: {}", finding.cause.name());
    one_line(&words)
}

fn what_is_wrong(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Lost => "is gone",
        FindingKind::Torn => "is torn between logical blocks",
        FindingKind::Shorn => "is torn inside a logical block",
        FindingKind::Stale => "is there in an older version",
        FindingKind::Foreign => "holds another file's data or older raw data",
        FindingKind::Misdirected => "lies at the wrong place",
        FindingKind::Unexpected => "is there",
        FindingKind::Unserializable => {
            "is gone, although a record issued after its acknowledgement is there,"
        }
        FindingKind::PartialTransaction => "is there as a part of its transaction only",
        FindingKind::Corrupt => "holds wrong bytes",
        FindingKind::Unreadable => "cannot be read",
        FindingKind::Unmountable => "does not mount",
        FindingKind::Metadata => "is damaged, as its checker finds,",
        FindingKind::Hang => "did not recover in time",
        FindingKind::KernelFault => "made the kernel fault",
        FindingKind::DeadDevice => "no longer answers",
    }
}

/// Foreign text (kernel messages, file names) on one line, with nothing in it
/// that a terminal obeys.
pub(crate) fn one_line(text: &str) -> String {
    printable(text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// [`one_line`] that keeps every space, for commands.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// `lost 12, unmountable 3`, or nothing.
pub(crate) fn counts(findings: &BTreeMap<FindingKind, u64>, lower_bound: bool) -> String {
    let plus = if lower_bound { "+" } else { "" };
    findings
        .iter()
        .map(|(kind, count)| format!("{kind} {}{plus}", number(*count)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// A count, abbreviated from 100,000 on.
pub(crate) fn number(count: u64) -> String {
    big_number(&count.to_string())
}

/// A decimal string, abbreviated from 100,000 on: `1.2e19`. What is not a
/// decimal string stays as it is.
pub(crate) fn big_number(decimal: &str) -> String {
    let digits = decimal.trim_start_matches('0');
    if decimal.is_empty() || !decimal.bytes().all(|b| b.is_ascii_digit()) {
        return one_line(decimal);
    }
    if digits.len() <= 5 {
        return if digits.is_empty() { "0" } else { digits }.to_owned();
    }
    let leading = digits
        .bytes()
        .take(3)
        .fold(0u32, |value, digit| value * 10 + u32::from(digit - b'0'));
    let mut tenths = (leading + 5) / 10;
    let mut exponent = digits.len() - 1;
    if tenths == 100 {
        tenths = 10;
        exponent += 1;
    }
    format!("{}.{}e{exponent}", tenths / 10, tenths % 10)
}

/// A time with two significant digits or more and the unit that fits: `1.2ms`.
pub(crate) fn time(ns: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1, "ns"),
        (1_000, "us"),
        (1_000_000, "ms"),
        (1_000_000_000, "s"),
    ];
    for (place, (unit, name)) in UNITS.iter().enumerate() {
        let last = place + 1 == UNITS.len();
        let whole = rounded(ns, *unit);
        if whole >= 1000 && !last {
            continue;
        }
        let tenths = rounded(ns, unit / 10);
        return if *unit > 1 && tenths < 100 {
            format!("{}.{}{name}", tenths / 10, tenths % 10)
        } else {
            format!("{whole}{name}")
        };
    }
    String::new()
}

/// `value / unit`, to the nearest; a unit of 0 counts as 1.
fn rounded(value: u64, unit: u64) -> u64 {
    let unit = unit.max(1);
    let rest = value % unit;
    value / unit + u64::from(rest >= unit - rest && rest > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn big_numbers_keep_two_digits_and_round() {
        assert_eq!(big_number("12345678901234567890"), "1.2e19");
        assert_eq!(big_number("99999"), "99999");
        assert_eq!(big_number("100000"), "1.0e5");
        assert_eq!(big_number("9996000"), "1.0e7");
        assert_eq!(big_number("000"), "0");
        assert_eq!(big_number("a lot"), "a lot");
    }

    #[test]
    fn times_take_the_unit_that_fits() {
        assert_eq!(time(0), "0ns");
        assert_eq!(time(999), "999ns");
        assert_eq!(time(1_000), "1.0us");
        assert_eq!(time(85_400), "85us");
        assert_eq!(time(9_960), "10us");
        assert_eq!(time(999_600), "1.0ms");
        assert_eq!(time(1_234_567), "1.2ms");
        assert_eq!(time(3_400_000_000), "3.4s");
        assert_eq!(time(u64::MAX), "18446744074s");
    }

    #[test]
    fn foreign_text_cannot_steer_a_terminal() {
        assert_eq!(one_line("a\u{1b}[31mb\r\n  c\t"), "a [31mb c");
    }
}
