//! Why a crash image breaches the contract: the reduced loss read against the
//! write log.

use plugpull_crash::log::index::{Command, Kind};
use plugpull_crash::log::reader::Recording;
use plugpull_crash::state::minimise::{Lost, Minimal};
use plugpull_model::drive::{Cache, DriveSettings, Honesty, WriteCacheReported};
use plugpull_model::units::{Position, Sector};
use plugpull_model::verdict::{Cause, Explanation, FindingKind, LostFragment};
use plugpull_record::{SECTOR_BYTES, find_stamp};

use super::holds::{Holds, JournalBlock, holds};

/// Most bytes of one lost fragment that are looked at.
const MAX_LOOK_BYTES: u64 = 64 << 10;
/// Most commands whose data is searched for a record's stamps.
const MAX_SEARCHED: usize = 1 << 16;

/// What an explanation is about.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// The kind of breach.
    pub kind: FindingKind,
    /// Seen only after the recovered stack was used once more.
    pub after_recovery: bool,
    /// The record, where there is one.
    pub record: Option<SubjectRecord>,
    /// The cut.
    pub cut: Position,
}

/// The record that a breach is about.
#[derive(Clone, Copy, Debug)]
pub struct SubjectRecord {
    /// Run, stream, sequence and version, as its stamps say.
    pub stamp: (plugpull_record::RunId, u32, u64, u32),
    /// Where the write call began.
    pub issued: Position,
    /// Where its acknowledgement was read.
    pub acknowledged: Option<Position>,
}

/// What an explanation reads.
pub struct Evidence<'a> {
    /// The commands.
    pub recording: &'a Recording,
    /// The drive.
    pub settings: &'a DriveSettings,
    /// Bytes of one unit of tearing.
    pub unit_bytes: u64,
    /// The number of a command among the log's entries.
    pub entry: &'a dyn Fn(usize) -> Option<u64>,
    /// The entry at which a mark of this position stands.
    pub mark: &'a dyn Fn(Position) -> Option<u64>,
    /// Mount options asked for.
    pub options: &'a str,
}

/// Where a record's own bytes were written: command, first sector, sectors.
struct Data {
    command: usize,
    sector: u64,
    sectors: u64,
}

/// Reads the reduced loss against the log.
#[must_use]
pub fn explain(evidence: &Evidence<'_>, subject: &Subject, minimal: &Minimal) -> Explanation {
    let pieces: Vec<(LostFragment, Holds)> = minimal
        .lost
        .iter()
        .map(|lost| piece(evidence, lost))
        .collect();
    let data = subject.record.map(|record| data_of(evidence, &record));
    let mut because = Vec::new();
    if let (Some(record), Some(data)) = (&subject.record, &data) {
        because.push(what_was_acknowledged(evidence, record, data));
    }
    let (cause, reason) = cause(
        evidence,
        subject,
        minimal,
        &pieces,
        data.as_deref().unwrap_or_default(),
    );
    because.extend(reason);
    if cause == Cause::NoFlushBeforeAcknowledgement {
        because.extend(why_no_flush(evidence));
    }
    Explanation {
        cause,
        lost: pieces.into_iter().map(|(fragment, _)| fragment).collect(),
        minimal: minimal.is_minimal,
        tried: minimal.tried,
        image: minimal.state.image.to_string(),
        because,
    }
}

fn piece(evidence: &Evidence<'_>, lost: &Lost) -> (LostFragment, Holds) {
    let command = &evidence.recording.commands()[lost.command];
    let begin = lost.units.start * evidence.unit_bytes;
    let end = lost.units.end * evidence.unit_bytes;
    let what = if matches!(command.kind, Kind::Write | Kind::WriteFua) {
        let length = (end - begin).min(MAX_LOOK_BYTES);
        let mut bytes = vec![0u8; usize::try_from(length).unwrap_or(0)];
        let into = begin.saturating_sub(command.offset_bytes);
        evidence.recording.read(command.data_at + into, &mut bytes);
        holds(begin, &bytes)
    } else {
        Holds::Zeros
    };
    let fragment = LostFragment {
        entry: (evidence.entry)(lost.command),
        command: command.kind.name().to_owned(),
        sector: Sector(begin / 512),
        sectors: (end - begin) / 512,
        holds: what.in_words(),
    };
    (fragment, what)
}

/// Where the record's own stamps lie in the log.
fn data_of(evidence: &Evidence<'_>, record: &SubjectRecord) -> Vec<Data> {
    let recording = evidence.recording;
    let commands = recording.commands();
    let first = commands.partition_point(|command| command.completed < record.issued.0);
    let mut out = Vec::new();
    for (index, command) in commands.iter().enumerate().skip(first).take(MAX_SEARCHED) {
        if !matches!(command.kind, Kind::Write | Kind::WriteFua) || command.errno != 0 {
            continue;
        }
        let mut sector = vec![0u8; SECTOR_BYTES];
        let count = command.length_bytes / SECTOR_BYTES as u64;
        let mut found: Option<Data> = None;
        for number in 0..count.min(MAX_LOOK_BYTES / SECTOR_BYTES as u64 * 16) {
            recording.read(command.data_at + number * SECTOR_BYTES as u64, &mut sector);
            let own = find_stamp(&sector).is_some_and(|stamp| {
                (stamp.run, stamp.stream, stamp.sequence, stamp.version) == record.stamp
            });
            if own {
                let at = command.offset_bytes / 512 + number;
                let data = found.get_or_insert(Data {
                    command: index,
                    sector: at,
                    sectors: 0,
                });
                data.sectors = at - data.sector + 1;
            } else if found.is_some() {
                break;
            }
        }
        out.extend(found);
    }
    out
}

fn what_was_acknowledged(evidence: &Evidence<'_>, record: &SubjectRecord, data: &[Data]) -> String {
    let (_, stream, sequence, _) = record.stamp;
    let mut words = format!("record {sequence} of stream {stream} was ");
    match record.acknowledged {
        Some(at) => {
            words.push_str("acknowledged at ");
            words.push_str(&place_of_mark(evidence, at));
        }
        None => words.push_str("issued"),
    }
    match data.first() {
        Some(data) => {
            words.push_str(&format!(
                ", its data is {}, sectors {}-{}",
                place_of(evidence, data.command),
                data.sector,
                data.sector + data.sectors - 1
            ));
        }
        None => words.push_str(", and no write of the log holds its data"),
    }
    words
}

fn place_of(evidence: &Evidence<'_>, command: usize) -> String {
    match (evidence.entry)(command) {
        Some(entry) => format!("entry {entry}"),
        None => format!("event {}", evidence.recording.commands()[command].completed),
    }
}

fn place_of_mark(evidence: &Evidence<'_>, at: Position) -> String {
    match (evidence.mark)(at) {
        Some(entry) => format!("entry {entry}"),
        None => format!("event {at}"),
    }
}

type Reasoned = (Cause, Vec<String>);

fn cause(
    evidence: &Evidence<'_>,
    subject: &Subject,
    minimal: &Minimal,
    pieces: &[(LostFragment, Holds)],
    data: &[Data],
) -> Reasoned {
    if subject.after_recovery {
        return (
            Cause::StaleAllocationAfterRecovery,
            vec!["right after recovery it was there; using the stack again took it".to_owned()],
        );
    }
    if let Some(found) = journal_without_blocks(evidence, subject, minimal, pieces) {
        return found;
    }
    if let Some(found) = torn(evidence, subject, minimal) {
        return found;
    }
    if let Some(acknowledged) = subject.record.and_then(|record| record.acknowledged) {
        return of_an_acknowledged_record(evidence, subject, minimal, acknowledged, data);
    }
    let lost_record = pieces
        .iter()
        .any(|(_, what)| matches!(what, Holds::Record { .. }));
    if lost_record
        && matches!(
            subject.kind,
            FindingKind::Foreign | FindingKind::Corrupt | FindingKind::Misdirected
        )
    {
        return (
            Cause::MetadataBeforeData,
            vec!["the metadata that points to the data survived and the data did not".to_owned()],
        );
    }
    let lost_last = minimal.lost.iter().map(|lost| lost.command).max();
    let lying = evidence.settings.flush == Honesty::Ignored;
    match lost_last {
        Some(last) if lying && flush_behind(evidence, last, subject.cut).is_some() => (
            Cause::FlushIgnored,
            vec![format!(
                "the FLUSH at {} should have made it durable",
                flush_behind(evidence, last, subject.cut)
                    .map_or_else(String::new, |flush| place_of(evidence, flush))
            )],
        ),
        Some(_) if !any_flush(evidence) => (
            Cause::NoFlushBeforeAcknowledgement,
            vec![
                "no FLUSH and no FUA write orders what is missing before what is there".to_owned(),
            ],
        ),
        _ => (Cause::Unexplained, Vec::new()),
    }
}

fn of_an_acknowledged_record(
    evidence: &Evidence<'_>,
    subject: &Subject,
    minimal: &Minimal,
    acknowledged: Position,
    data: &[Data],
) -> Reasoned {
    let commands = evidence.recording.commands();
    let written = data
        .iter()
        .map(|data| data.command)
        .filter(|command| commands[*command].completed < acknowledged.0)
        .max();
    // What has to be durable at the acknowledgement: the record's own data, and
    // whatever else the breach cannot do without, e.g. the journal's commit.
    let needed = minimal
        .lost
        .iter()
        .map(|lost| lost.command)
        .filter(|command| commands[*command].completed < acknowledged.0)
        .chain(written)
        .max();
    let Some(needed) = needed else {
        let reason = match data.first() {
            Some(data) => format!(
                "its data was written at {}, after the acknowledgement",
                place_of(evidence, data.command)
            ),
            None if minimal.lost.is_empty() => {
                "nothing that it needs was written before the acknowledgement".to_owned()
            }
            None => "what it needs was written after the acknowledgement".to_owned(),
        };
        return (Cause::AcknowledgedBeforeItsData, vec![reason]);
    };
    let flush = flush_behind(evidence, needed, acknowledged);
    let fua = commands[needed].kind == Kind::WriteFua;
    let (from, to) = (
        place_of(evidence, needed),
        place_of_mark(evidence, acknowledged),
    );
    let settings = evidence.settings;
    match flush {
        Some(flush) if settings.flush == Honesty::Ignored => (
            Cause::FlushIgnored,
            vec![format!(
                "the FLUSH at {} came between {from} and {to} and the drive ignored it",
                place_of(evidence, flush)
            )],
        ),
        None if fua && settings.fua == Honesty::Ignored => (
            Cause::FuaIgnored,
            vec![format!(
                "{from} was written with FUA and the drive ignored it"
            )],
        ),
        None if !fua && settings.cache == Cache::Volatile => {
            let last = last_flush(evidence, acknowledged);
            let last = last.map_or_else(
                || "there is none before it at all".to_owned(),
                |flush| format!("the last is {}", place_of(evidence, flush)),
            );
            (
                Cause::NoFlushBeforeAcknowledgement,
                vec![format!("no FLUSH arrived between {from} and {to}, {last}")],
            )
        }
        _ => {
            let _ = subject;
            (
                Cause::Unexplained,
                vec!["what is missing should have been durable by then".to_owned()],
            )
        }
    }
}

/// The first FLUSH that was submitted after `command` completed, and itself
/// completed before `until`.
fn flush_behind(evidence: &Evidence<'_>, command: usize, until: Position) -> Option<usize> {
    let commands = evidence.recording.commands();
    let done = commands[command].completed;
    (command + 1..commands.len())
        .take_while(|index| commands[*index].completed < until.0)
        .find(|index| is_flush(&commands[*index]) && commands[*index].submitted > done)
}

fn last_flush(evidence: &Evidence<'_>, until: Position) -> Option<usize> {
    let commands = evidence.recording.commands();
    let end = commands.partition_point(|command| command.completed < until.0);
    let base = evidence.recording.header().base;
    (0..end)
        .rev()
        .take_while(|index| commands[*index].completed >= base)
        .find(|index| is_flush(&commands[*index]))
}

fn is_flush(command: &Command) -> bool {
    command.kind == Kind::Flush && command.errno == 0
}

fn any_flush(evidence: &Evidence<'_>) -> bool {
    let base = evidence.recording.header().base;
    evidence.recording.commands().iter().any(|command| {
        command.completed >= base && (is_flush(command) || command.kind == Kind::WriteFua)
    })
}

/// One command survived in part, and it is larger than the drive's atomic unit.
fn torn(evidence: &Evidence<'_>, subject: &Subject, minimal: &Minimal) -> Option<Reasoned> {
    if !matches!(subject.kind, FindingKind::Torn | FindingKind::Shorn) {
        return None;
    }
    let commands = evidence.recording.commands();
    let (lost, command) = minimal.lost.iter().find_map(|lost| {
        let command = &commands[lost.command];
        let units = command.length_bytes / evidence.unit_bytes;
        (lost.units.end - lost.units.start < units).then_some((lost, command))
    })?;
    let flushed = subject
        .record
        .and_then(|record| record.acknowledged)
        .is_some_and(|at| flush_behind(evidence, lost.command, at).is_some());
    if flushed {
        return None;
    }
    Some((
        Cause::TornBeyondAtomicUnit,
        vec![format!(
            "{} writes {} bytes at once, the drive promises {} at most, and no FLUSH came behind it",
            place_of(evidence, lost.command),
            command.length_bytes,
            evidence.settings.atomic_write_bytes
        )],
    ))
}

/// A commit block is there, and what it commits is not.
fn journal_without_blocks(
    evidence: &Evidence<'_>,
    subject: &Subject,
    minimal: &Minimal,
    pieces: &[(LostFragment, Holds)],
) -> Option<Reasoned> {
    if !matches!(
        subject.kind,
        FindingKind::Unmountable | FindingKind::Metadata | FindingKind::KernelFault
    ) {
        return None;
    }
    let commands = evidence.recording.commands();
    let first = minimal.lost.iter().map(|lost| lost.command).min()?;
    let lost_commits = pieces
        .iter()
        .all(|(_, what)| matches!(what, Holds::Journal(JournalBlock::Commit(_))));
    if lost_commits {
        return None;
    }
    let (index, transaction) = surviving_commit(evidence, subject, minimal)?;
    let ordered = flush_behind(evidence, first, Position(commands[index].submitted)).is_some();
    let mut because = vec![format!(
        "the journal's commit of transaction {transaction} at {} is there",
        place_of(evidence, index)
    )];
    if ordered && evidence.settings.flush == Honesty::Ignored {
        because.push("the FLUSH between them was ignored by the drive".to_owned());
        return Some((Cause::FlushIgnored, because));
    }
    if ordered {
        return None;
    }
    because.push(if index == first {
        "both are parts of one write, which may tear at every logical block".to_owned()
    } else {
        format!("no FLUSH orders {} before it", place_of(evidence, first))
    });
    because.extend(why_no_flush(evidence));
    Some((Cause::JournalCommitWithoutItsBlocks, because))
}

/// The commit block that is there, and stands next behind what is missing on
/// the device: a journal is written from its front to its end.
fn surviving_commit(
    evidence: &Evidence<'_>,
    subject: &Subject,
    minimal: &Minimal,
) -> Option<(usize, u32)> {
    let commands = evidence.recording.commands();
    let base = evidence.recording.header().base;
    let missing = minimal.lost.iter().map(|lost| lost.units.end).min()? * evidence.unit_bytes;
    let mut bytes = vec![0u8; 512];
    let mut nearest: Option<(u64, usize, u32)> = None;
    let candidates = commands
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, command)| command.submitted < subject.cut.0)
        .take_while(|(_, command)| command.completed >= base)
        .take(MAX_SEARCHED)
        .filter(|(_, command)| matches!(command.kind, Kind::Write | Kind::WriteFua))
        .filter(|(_, command)| command.errno == 0);
    for (index, command) in candidates {
        let blocks = (command.length_bytes / evidence.unit_bytes).min(MAX_LOOK_BYTES);
        for block in 0..blocks {
            let at = command.offset_bytes + block * evidence.unit_bytes;
            let unit = at / evidence.unit_bytes;
            let is_lost = minimal
                .lost
                .iter()
                .any(|lost| lost.command == index && lost.units.contains(&unit));
            if at < missing || is_lost || nearest.is_some_and(|(known, _, _)| known <= at) {
                continue;
            }
            let from = command.data_at + block * evidence.unit_bytes;
            evidence.recording.read(from, &mut bytes);
            if let Holds::Journal(JournalBlock::Commit(transaction)) = holds(at, &bytes) {
                nearest = Some((at, index, transaction));
            }
        }
    }
    nearest.map(|(_, index, transaction)| (index, transaction))
}

/// What of the stack's settings makes the host send no FLUSH.
fn why_no_flush(evidence: &Evidence<'_>) -> Option<String> {
    if evidence.settings.write_cache_reported == WriteCacheReported::Through {
        return Some("the host is told that the drive writes through, and sends none".to_owned());
    }
    let telling: Vec<&str> = evidence
        .options
        .split(',')
        .map(str::trim)
        .filter(|option| {
            matches!(
                *option,
                "barrier=0" | "nobarrier" | "journal_async_commit" | "data=writeback"
            )
        })
        .collect();
    if !telling.is_empty() {
        return Some(format!("the stack is mounted with {}", telling.join(",")));
    }
    (!any_flush(evidence)).then(|| "the log holds no FLUSH at all, as with barrier=0".to_owned())
}
