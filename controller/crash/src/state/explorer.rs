//! Walks a recording and keeps, at every position, what is durable and what is
//! a candidate.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use plugpull_model::drive::{Cache, DiscardReads, DriveSettings, Honesty, PlantedFault};
use plugpull_model::seed::Seed;
use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

use crate::drive::recorder::DISCARD_PATTERN;
use crate::log::index::{Command, Kind};
use crate::log::reader::Recording;
use crate::serve::memory::SharedMemory;

use super::content::Contents;
use super::{ImageId, Source, Unit};

/// A command that can leave something on the medium.
pub(super) type CommandIndex = usize;

/// How far a candidate has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// Completed; a FLUSH behind it may have covered it or not.
    InDoubt,
    /// Completed, and covered by no FLUSH.
    Completed,
    /// Submitted only.
    InFlight,
}

/// A candidate at the current position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) index: CommandIndex,
    pub(super) standing: Standing,
}

/// What a FLUSH covers of what stands before it in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Covers {
    /// What its submission says: everything that completed before it. Where a
    /// log has no submissions (the kernel's dialect), all that stands before it.
    #[default]
    Known,
    /// The log does not say when a FLUSH was submitted (QEMU's dialect): what
    /// completed since the FLUSH before may have completed while this one was
    /// in flight. It stays a candidate until the next FLUSH, in doubt: an image
    /// that lacks it may not be possible at all.
    InDoubt,
}

/// The durable writers of a unit that none of the others supersedes, in
/// completion order. Nearly always one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holders {
    One(u32),
    Several(Vec<u32>),
}

impl Holders {
    pub(super) fn as_slice(&self) -> &[u32] {
        match self {
            Holders::One(one) => std::slice::from_ref(one),
            Holders::Several(several) => several,
        }
    }

    pub(super) fn first(&self) -> CommandIndex {
        self.as_slice().first().copied().unwrap_or(0) as CommandIndex
    }
}

/// What was durable changed: `unit` now holds `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableChange {
    /// The unit.
    pub unit: Unit,
    /// Its new durable content.
    pub source: Source,
}

/// The state of the drive at one position of a recording.
#[derive(Debug)]
pub struct Explorer<'a> {
    pub(super) recording: &'a Recording,
    pub(super) settings: &'a DriveSettings,
    pub(super) contents: Contents<'a>,
    covers: Covers,
    // Commands by submission, for those that complete later than that.
    submissions: Vec<u32>,
    next_submission: usize,
    next_completion: usize,
    position: u64,
    // Completed, and covered only if the last FLUSH came after they completed.
    doubtful: BTreeSet<CommandIndex>,
    // Candidates by command index, which is completion order.
    completed: BTreeMap<CommandIndex, u64>,
    // Candidates in flight by submission, which is their order.
    in_flight: BTreeMap<u64, CommandIndex>,
    completed_bytes: u64,
    pub(super) durable: HashMap<Unit, Holders>,
    pub(super) ambiguous: HashSet<Unit>,
    changes: Vec<DurableChange>,
    durable_image: ImageId,
    pub(super) faults_seed: Seed,
    kept_by_fault: HashSet<CommandIndex>,
    lost_by_fault: Option<CommandIndex>,
}

/// Bytes of one unit of tearing on this drive.
#[must_use]
pub fn unit_bytes(settings: &DriveSettings) -> u64 {
    if settings.faults.contains(&PlantedFault::Shorn) {
        512
    } else {
        u64::from(settings.logical_block_bytes)
    }
}

/// Replays everything that completed before `base` onto `image`, which has to
/// hold zeros: the image at `base`.
pub fn replay_to_base(recording: &Recording, settings: &DriveSettings, image: &SharedMemory) {
    let base = recording.header().base;
    let mut data = Vec::new();
    for command in recording
        .commands()
        .iter()
        .filter(|c| c.errno == 0 && c.completed < base)
    {
        // Writing zeros over zeros would cost memory: images are sparse.
        // In range: the reader checked every command against the device.
        let _ = match command.kind {
            Kind::Write | Kind::WriteFua => {
                data.resize(usize::try_from(command.length_bytes).unwrap_or(0), 0);
                recording.read(command.data_at, &mut data);
                write_sparse(image, command.offset_bytes, &data)
            }
            Kind::WriteZeroes => image
                .punch(command.offset_bytes, command.length_bytes)
                .is_ok(),
            Kind::Discard => match settings.discard_reads {
                DiscardReads::Zero => image
                    .punch(command.offset_bytes, command.length_bytes)
                    .is_ok(),
                DiscardReads::Old => true,
                DiscardReads::Pattern => {
                    image.fill(command.offset_bytes, command.length_bytes, DISCARD_PATTERN)
                }
            },
            Kind::Flush => true,
        };
    }
}

fn write_sparse(image: &SharedMemory, offset: u64, data: &[u8]) -> bool {
    let mut at = offset;
    let mut old = [0u8; 4096];
    for chunk in data.chunks(4096) {
        let skip = chunk.iter().all(|byte| *byte == 0) && {
            let old = &mut old[..chunk.len()];
            image.read(at, old) && old.iter().all(|byte| *byte == 0)
        };
        if !skip && !image.write(at, chunk) {
            return false;
        }
        at += chunk.len() as u64;
    }
    true
}

impl<'a> Explorer<'a> {
    /// At the position of `base`. `base` is the image there (see
    /// [`replay_to_base`]); `faults_seed` chooses what planted faults hit.
    #[must_use]
    pub fn new(
        recording: &'a Recording,
        settings: &'a DriveSettings,
        base: &'a SharedMemory,
        faults_seed: Seed,
    ) -> Explorer<'a> {
        Self::reading(recording, settings, base, faults_seed, Covers::Known)
    }

    /// The same, of a log whose FLUSHes may be `covers` in doubt.
    #[must_use]
    pub fn reading(
        recording: &'a Recording,
        settings: &'a DriveSettings,
        base: &'a SharedMemory,
        faults_seed: Seed,
        covers: Covers,
    ) -> Explorer<'a> {
        let start = recording.header().base;
        let commands = recording.commands();
        let mut explorer = Explorer {
            recording,
            settings,
            contents: Contents::new(recording, base, unit_bytes(settings)),
            covers,
            submissions: Vec::new(),
            next_submission: 0,
            next_completion: commands.partition_point(|command| command.completed < start),
            position: start,
            doubtful: BTreeSet::new(),
            completed: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            completed_bytes: 0,
            durable: HashMap::new(),
            ambiguous: HashSet::new(),
            changes: Vec::new(),
            durable_image: ImageId::default(),
            faults_seed,
            kept_by_fault: HashSet::new(),
            lost_by_fault: None,
        };
        explorer.lost_by_fault = explorer.choose_lost_write(faults_seed);
        for (index, command) in commands.iter().enumerate().skip(explorer.next_completion) {
            if command.errno != 0 || command.submitted == command.completed {
                continue;
            }
            if command.submitted >= start {
                // The readers allow fewer commands than that.
                explorer
                    .submissions
                    .push(u32::try_from(index).unwrap_or(u32::MAX));
            } else if explorer.leaves_data(index) {
                explorer.in_flight.insert(command.submitted, index);
            }
        }
        explorer
            .submissions
            .sort_by_key(|index| commands[*index as usize].submitted);
        explorer
    }

    fn choose_lost_write(&self, seed: Seed) -> Option<CommandIndex> {
        if !self.settings.faults.contains(&PlantedFault::OneLostWrite) {
            return None;
        }
        let start = self.recording.header().base;
        let writes: Vec<CommandIndex> = (0..self.recording.commands().len())
            .filter(|index| {
                let command = self.command(*index);
                command.completed >= start && command.errno == 0 && command.kind != Kind::Flush
            })
            .collect();
        let mut random = ChaCha12Rng::seed_from_u64(seed.derive("one-lost-write").0);
        (!writes.is_empty()).then(|| writes[random.random_range(0..writes.len())])
    }

    pub(super) fn command(&self, index: CommandIndex) -> &'a Command {
        &self.recording.commands()[index]
    }

    fn leaves_data(&self, index: CommandIndex) -> bool {
        let command = self.command(index);
        match command.kind {
            Kind::Flush => false,
            Kind::Discard if self.settings.discard_reads == DiscardReads::Old => false,
            _ => command.length_bytes > 0 && self.lost_by_fault != Some(index),
        }
    }

    /// The current position: a cut here sees every event before it.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The durable image here.
    #[must_use]
    pub fn durable_image(&self) -> ImageId {
        self.durable_image
    }

    /// Every change of what is durable since `base`, in order. Only grows.
    #[must_use]
    pub fn changes(&self) -> &[DurableChange] {
        &self.changes
    }

    /// Bytes of one unit.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        self.contents.unit_bytes()
    }

    /// The last position at which there is anything to cut: behind the last event.
    #[must_use]
    pub fn end(&self) -> u64 {
        let last = self.recording.commands().last();
        last.map_or(self.position, |command| command.completed + 1)
            .max(self.position)
    }

    /// Takes the events of this position. Returns whether the candidates or the
    /// durable image changed; the position moves on by one in any case.
    pub fn step(&mut self) -> bool {
        let at = self.position;
        self.position += 1;
        let mut changed = false;
        while let Some(index) = self.submissions.get(self.next_submission) {
            let index = *index as CommandIndex;
            if self.command(index).submitted > at {
                break;
            }
            self.next_submission += 1;
            if self.leaves_data(index) {
                self.in_flight.insert(self.command(index).submitted, index);
                changed = true;
            }
        }
        while let Some(command) = self.recording.commands().get(self.next_completion) {
            if command.completed > at {
                break;
            }
            let index = self.next_completion;
            self.next_completion += 1;
            if command.errno == 0 {
                changed |= self.ended(index);
            }
        }
        changed
    }

    fn ended(&mut self, index: CommandIndex) -> bool {
        let command = self.command(index);
        if command.kind == Kind::Flush {
            return self.flushed(index);
        }
        let instant = command.submitted == command.completed && self.leaves_data(index);
        if !instant && self.in_flight.remove(&command.submitted).is_none() {
            return false;
        }
        self.completed(index);
        true
    }

    fn completed(&mut self, index: CommandIndex) {
        let command = self.command(index);
        let fua = command.kind == Kind::WriteFua && self.settings.fua == Honesty::Honoured;
        if self.settings.cache != Cache::Volatile || fua {
            self.make_durable(index);
            return;
        }
        self.completed_bytes += command.length_bytes;
        self.completed.insert(index, self.completed_bytes);
        if let Some(capacity) = self.settings.cache_bytes {
            // A write is destaged once the cache is full of newer ones.
            while let Some((&oldest, &upto)) = self.completed.first_key_value() {
                if self.completed_bytes - upto < capacity {
                    break;
                }
                self.completed.remove(&oldest);
                self.make_durable(oldest);
            }
        }
    }

    fn flushed(&mut self, flush: CommandIndex) -> bool {
        if self.settings.flush == Honesty::Ignored {
            return false;
        }
        if self.covers == Covers::InDoubt {
            // The FLUSH before this one, and so what it may have covered, is
            // long over; what completed since may have been too late for this.
            let sure = std::mem::take(&mut self.doubtful);
            let changed = !sure.is_empty() || !self.completed.is_empty();
            for index in sure {
                self.make_durable(index);
            }
            self.doubtful = std::mem::take(&mut self.completed).into_keys().collect();
            return changed;
        }
        let arrived = self.command(flush).submitted;
        let mut covered: Vec<CommandIndex> = self
            .completed
            .keys()
            .copied()
            .filter(|index| {
                self.command(*index).completed < arrived && !self.kept_by_fault.contains(index)
            })
            .collect();
        if self.settings.faults.contains(&PlantedFault::Unserializable) && !covered.is_empty() {
            self.kept_by_fault.insert(covered.remove(0));
        }
        for index in &covered {
            self.completed.remove(index);
            self.make_durable(*index);
        }
        !covered.is_empty()
    }

    fn make_durable(&mut self, index: CommandIndex) {
        let command = self.command(index);
        for unit in self.units(index) {
            let commands = self.recording.commands();
            let mut holders: Vec<u32> = match self.durable.get(&unit) {
                Some(holders) => holders.as_slice().to_vec(),
                None => Vec::new(),
            };
            if holders
                .iter()
                .any(|holder| command.completed < commands[*holder as usize].submitted)
            {
                continue;
            }
            let before = holders.first().copied();
            holders.retain(|holder| supersedes_not(commands, command, *holder));
            holders.push(u32::try_from(index).unwrap_or(u32::MAX));
            holders.sort_unstable();
            if holders.len() > 1 {
                self.ambiguous.insert(unit);
            } else {
                self.ambiguous.remove(&unit);
            }
            let now = holders.first().copied();
            let holders = match holders.as_slice() {
                [one] => Holders::One(*one),
                _ => Holders::Several(holders),
            };
            self.durable.insert(unit, holders);
            if before == now {
                continue;
            }
            let content = |holder: Option<u32>| match holder {
                Some(holder) => self.source(holder as CommandIndex, unit),
                None => Source::Base,
            };
            let (old, new) = (content(before), content(now));
            let change = self
                .contents
                .term(unit, new)
                .wrapping_sub(self.contents.term(unit, old));
            self.durable_image = ImageId(self.durable_image.0.wrapping_add(change));
            self.changes.push(DurableChange { unit, source: new });
        }
    }

    /// The units a command touches. Under `shorn`, and always for commands of
    /// whole blocks, these are exact: commands are multiples of the block.
    pub(super) fn units(&self, index: CommandIndex) -> std::ops::Range<Unit> {
        let command = self.command(index);
        let unit = self.contents.unit_bytes();
        command.offset_bytes / unit..(command.offset_bytes + command.length_bytes).div_ceil(unit)
    }

    /// What a command would put into one of its units.
    pub(super) fn source(&self, index: CommandIndex, unit: Unit) -> Source {
        let command = self.command(index);
        match command.kind {
            Kind::Write | Kind::WriteFua => {
                let into = (unit * self.contents.unit_bytes()).saturating_sub(command.offset_bytes);
                Source::Log(command.data_at + into)
            }
            Kind::WriteZeroes | Kind::Flush => Source::Fill(0),
            Kind::Discard => match self.settings.discard_reads {
                DiscardReads::Pattern => Source::Fill(DISCARD_PATTERN),
                DiscardReads::Zero | DiscardReads::Old => Source::Fill(0),
            },
        }
    }

    /// Whether a command's fragment is all of it.
    pub(super) fn is_atomic(&self, index: CommandIndex) -> bool {
        let command = self.command(index);
        command.kind != Kind::Discard
            && !self.settings.faults.contains(&PlantedFault::Shorn)
            && self
                .settings
                .is_atomic(command.offset_bytes, command.length_bytes)
    }

    /// What `unit` holds in the durable image.
    pub(super) fn durable_source(&self, unit: Unit) -> Source {
        match self.durable.get(&unit) {
            Some(holders) => self.source(holders.first(), unit),
            None => Source::Base,
        }
    }

    /// The candidates here: those in doubt and the completed ones, each in
    /// completion order, then those in flight in submission order.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let of = |standing: Standing| {
            move |index: &CommandIndex| Candidate {
                index: *index,
                standing,
            }
        };
        let doubtful = self.doubtful.iter().map(of(Standing::InDoubt));
        let completed = self.completed.keys().map(of(Standing::Completed));
        let flying = self.in_flight.values().map(of(Standing::InFlight));
        doubtful.chain(completed).chain(flying).collect()
    }
}

/// Whether `command`, durable now, leaves `holder` a possible content beside it:
/// the two were in flight together.
fn supersedes_not(commands: &[Command], command: &Command, holder: u32) -> bool {
    commands[holder as usize].completed >= command.submitted
}
