//! Findings, numbers and times as people read them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plugpull_model::drive::PlantedFault;
use plugpull_model::verdict::{Detection, Explanation, Fate, Finding, FindingKind, LostFragment};
use serde::Serialize;

/// One finding in one sentence: the object, what is wrong with it, where the
/// cut was, whether the stack said so, and the cause.
#[must_use]
pub fn finding_in_words(finding: &Finding) -> String {
    tell(finding, &finding.breach.observed)
}

/// [`finding_in_words`] for a terminal: of many kernel messages, the first two
/// and the last.
pub(crate) fn finding_in_brief(finding: &Finding) -> String {
    tell(finding, &brief(&finding.breach.observed))
}

fn tell(finding: &Finding, observed: &str) -> String {
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
    let observed = one_line(observed);
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

/// An explanation on one line: the reduced loss, and the reasoning.
#[must_use]
pub fn explanation_in_words(explanation: &Explanation) -> String {
    const MOST: usize = 4;
    let lost: Vec<String> = explanation
        .lost
        .iter()
        .take(MOST)
        .map(lost_in_words)
        .collect();
    let mut words = match explanation.lost.len() {
        0 => "nothing that was written before the cut is missing".to_owned(),
        n if n > MOST => format!("lost: {}, and {} more", lost.join(", "), n - MOST),
        _ => format!("lost: {}", lost.join(", ")),
    };
    if !explanation.minimal {
        let _ = write!(
            words,
            " (perhaps more than needed: the search ended after {} images)",
            explanation.tried
        );
    }
    for sentence in &explanation.because {
        let _ = write!(words, "; {sentence}");
    }
    let _ = write!(words, "; hence {}", explanation.cause.name());
    one_line(&words)
}

fn lost_in_words(lost: &LostFragment) -> String {
    let last = lost.sector.0 + lost.sectors.saturating_sub(1);
    let mut words = match lost.entry {
        Some(entry) => format!("entry {entry} ({}), ", lost.command),
        None => format!("a {}, ", lost.command),
    };
    let _ = write!(words, "sectors {}-{last}", lost.sector);
    if let Some(holds) = &lost.holds {
        let _ = write!(words, ", {holds}");
    }
    words
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

/// How a kernel message begins where several are joined by `: `.
const MESSAGE_STARTS: [&str; 10] = [
    "EXT4-fs",
    "ext4: ",
    "JBD2: ",
    "XFS (",
    "BTRFS",
    "Buffer I/O error",
    "I/O error",
    "Aborting journal",
    "BUG: ",
    "WARNING: ",
];

/// What stands before the first kernel message of `text`, and its kernel
/// messages; where it has several lines, each is a message.
fn messages(text: &str) -> (Option<&str>, Vec<&str>) {
    let begins = |text: &str| MESSAGE_STARTS.iter().any(|start| text.starts_with(start));
    let mut messages = Vec::new();
    for line in text.lines() {
        let mut start = 0;
        for (at, joint) in line.match_indices(": ") {
            let rest = at + joint.len();
            if begins(&line[rest..]) {
                messages.push(&line[start..at]);
                start = rest;
            }
        }
        messages.push(&line[start..]);
    }
    messages.retain(|message| !message.trim().is_empty());
    let led = messages.len() > 1 && messages.first().is_some_and(|first| !begins(first));
    let head = led.then(|| messages.remove(0));
    (head, messages)
}

/// Of more than three kernel messages the first two and the last, with the
/// number of those left out.
pub(crate) fn brief(text: &str) -> String {
    let (head, messages) = messages(text);
    let [first, second, between @ .., last] = messages.as_slice() else {
        return text.to_owned();
    };
    if between.is_empty() {
        return text.to_owned();
    }
    let head = head.map_or_else(String::new, |head| format!("{head}: "));
    format!("{head}{first}: {second}; {} more; {last}", between.len())
}

/// A setting as a scenario spells it.
pub(crate) fn spelled(setting: &impl Serialize) -> String {
    match serde_json::to_value(setting) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

/// A planted fault by the name that a scenario plants it by.
pub(crate) fn fault_in_words(fault: &PlantedFault) -> String {
    match fault {
        PlantedFault::Shorn
        | PlantedFault::BitCorruption
        | PlantedFault::Misdirected
        | PlantedFault::Unserializable
        | PlantedFault::OneLostWrite => spelled(fault),
        PlantedFault::WriteEio {
            from_event,
            to_event,
        } => format!("write-eio from base+{from_event} until base+{to_event}"),
        PlantedFault::WriteEnospc {
            from_event,
            to_event,
        } => format!("write-enospc from base+{from_event} until base+{to_event}"),
        PlantedFault::DeadDevice { from_event } => {
            format!("dead-device from base+{from_event} on")
        }
    }
}

/// `shorn, write-eio from base+5 until base+9`, or nothing.
pub(crate) fn faults_in_words(faults: &[PlantedFault]) -> String {
    let words: Vec<String> = faults.iter().map(fault_in_words).collect();
    words.join(", ")
}

/// A size with the binary unit that leaves no rest: `4 KiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in UNITS {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} bytes")
}

/// Words of a command, quoted for a shell where it needs them quoted.
pub(crate) fn command(words: &[String]) -> String {
    let quoted: Vec<String> = words
        .iter()
        .map(|word| {
            let plain = !word.is_empty()
                && word
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_=,.:/+@%^".contains(c));
            if plain {
                word.clone()
            } else {
                format!("'{}'", word.replace('\'', "'\\''"))
            }
        })
        .collect();
    quoted.join(" ")
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
    fn of_many_kernel_messages_the_first_two_and_the_last_stay() {
        let head = "mount failed: Bad message (os error 74)";
        let first = "EXT4-fs (loop0): barriers disabled";
        let second = "JBD2: Invalid checksum recovering data block 9 in journal block 15";
        let last = "EXT4-fs (loop0): error loading journal";
        assert_eq!(
            brief(&format!(
                "{head}: {first}: {second}: JBD2: one: JBD2: two: {last}"
            )),
            format!("{head}: {first}: {second}; 2 more; {last}")
        );
        assert_eq!(
            brief(&format!("{first}\n{second}\nJBD2: one\n\n{last}\n")),
            format!("{first}: {second}; 1 more; {last}")
        );
        let three = format!("{head}: {first}: {second}: {last}");
        assert_eq!(brief(&three), three);
        let other = "e2fsck -p: a: b: c: d: e";
        assert_eq!(brief(other), other);
        assert_eq!(brief(""), "");
    }

    #[test]
    fn sizes_take_the_unit_that_leaves_no_rest() {
        assert_eq!(size(0), "0 bytes");
        assert_eq!(size(512), "512 bytes");
        assert_eq!(size(4096), "4 KiB");
        assert_eq!(size(64 << 20), "64 MiB");
        assert_eq!(size((1 << 30) + 1024), "1048577 KiB");
        assert_eq!(size(u64::MAX), "18446744073709551615 bytes");
    }

    #[test]
    fn a_command_can_be_pasted() {
        let words = ["-E", "a=0,b=1", "two words", "it's", ""].map(str::to_owned);
        assert_eq!(command(&words), r"-E a=0,b=1 'two words' 'it'\''s' ''");
    }

    #[test]
    fn a_fault_has_the_name_it_is_planted_by() {
        let eio = PlantedFault::WriteEio {
            from_event: 5,
            to_event: 9,
        };
        assert_eq!(
            faults_in_words(&[PlantedFault::BitCorruption, eio]),
            "bit-corruption, write-eio from base+5 until base+9"
        );
        assert_eq!(faults_in_words(&[]), "");
    }

    #[test]
    fn foreign_text_cannot_steer_a_terminal() {
        assert_eq!(one_line("a\u{1b}[31mb\r\n  c\t"), "a [31mb c");
    }
}
