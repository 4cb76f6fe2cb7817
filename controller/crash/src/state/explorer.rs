//! Walks a recording and keeps, at every position, what is durable and what is
//! a candidate.

use std::collections::{BTreeMap, HashMap, HashSet};

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

/// A candidate at the current position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) index: CommandIndex,
    pub(super) in_flight: bool,
}

/// What was durable changed: `unit` now holds `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableChange {
    /// The unit.
    pub unit: Unit,
    /// Its new durable content.
    pub source: Source,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Submitted(CommandIndex),
    Completed(CommandIndex),
}

/// The state of the drive at one position of a recording.
#[derive(Debug)]
pub struct Explorer<'a> {
    pub(super) recording: &'a Recording,
    pub(super) settings: &'a DriveSettings,
    pub(super) contents: Contents<'a>,
    events: BTreeMap<u64, Event>,
    position: u64,
    // Candidates by command index, which is completion order.
    completed: BTreeMap<CommandIndex, u64>,
    // Candidates in flight by submission, which is their order.
    in_flight: BTreeMap<u64, CommandIndex>,
    completed_bytes: u64,
    // Durable writers of a unit that none of the others supersedes.
    pub(super) durable: HashMap<Unit, Vec<CommandIndex>>,
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
        let start = recording.header().base;
        let mut explorer = Explorer {
            recording,
            settings,
            contents: Contents::new(recording, base, unit_bytes(settings)),
            events: BTreeMap::new(),
            position: start,
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
        for (index, command) in recording.commands().iter().enumerate() {
            if command.completed < start || command.errno != 0 {
                continue;
            }
            explorer
                .events
                .insert(command.completed, Event::Completed(index));
            if command.submitted >= start {
                explorer
                    .events
                    .insert(command.submitted, Event::Submitted(index));
            } else if explorer.leaves_data(index) {
                explorer.in_flight.insert(command.submitted, index);
            }
        }
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

    /// Takes the next event. Returns whether the candidates or the durable
    /// image changed; the position moves in any case.
    pub fn step(&mut self) -> bool {
        let event = self.events.remove(&self.position);
        self.position += 1;
        match event {
            None => false,
            Some(Event::Submitted(index)) => {
                if !self.leaves_data(index) {
                    return false;
                }
                self.in_flight.insert(self.command(index).submitted, index);
                true
            }
            Some(Event::Completed(index)) if self.command(index).kind == Kind::Flush => {
                self.flushed(index)
            }
            Some(Event::Completed(index)) => {
                if self
                    .in_flight
                    .remove(&self.command(index).submitted)
                    .is_none()
                {
                    return false;
                }
                self.completed(index);
                true
            }
        }
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
            let holders = self.durable.entry(unit).or_default();
            let commands = self.recording.commands();
            if holders
                .iter()
                .any(|holder| command.completed < commands[*holder].submitted)
            {
                continue;
            }
            let before = holders.first().copied();
            holders.retain(|holder| commands[*holder].completed >= command.submitted);
            holders.push(index);
            holders.sort_unstable();
            if holders.len() > 1 {
                self.ambiguous.insert(unit);
            } else {
                self.ambiguous.remove(&unit);
            }
            let now = holders.first().copied();
            if before == now {
                continue;
            }
            let old = before.map_or(Source::Base, |holder| self.source(holder, unit));
            let new = now.map_or(Source::Base, |holder| self.source(holder, unit));
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

    /// The candidates here: completed ones in completion order, then those in
    /// flight in submission order.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let completed = self.completed.keys().map(|index| Candidate {
            index: *index,
            in_flight: false,
        });
        let flying = self.in_flight.values().map(|index| Candidate {
            index: *index,
            in_flight: true,
        });
        completed.chain(flying).collect()
    }
}
