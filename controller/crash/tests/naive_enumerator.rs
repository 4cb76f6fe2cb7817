//! The fast enumerator against a naive one, as sets of images.
//!
//! The naive one follows the words of the crash model: at each cut it asks of
//! every command whether it is durable or a candidate, tries every subset of
//! fragments that the policy allows, and for each unit every survivor that no
//! other survivor supersedes. It shares no code with the fast one.

use std::collections::BTreeSet;

use plugpull_crash::log::index::{Command, IndexHeader, Kind};
use plugpull_crash::log::reader::Recording;
use plugpull_crash::serve::memory::SharedMemory;
use plugpull_crash::state::Source;
use plugpull_crash::state::enumerate::{Limits, crash_states};
use plugpull_crash::state::explorer::{Explorer, replay_to_base};
use plugpull_model::drive::{Cache, DriveSettings, Honesty, InFlight, Survivors};
use plugpull_model::seed::Seed;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

const BLOCK: u64 = 512;
const BLOCKS: u64 = 6;
/// One byte stands for a block in the naive model: each holds one value throughout.
type Image = Vec<u8>;

struct Case {
    recording: Recording,
    settings: DriveSettings,
}

/// A random log: commands overlap in space and in time.
fn byte(recording: &Recording, at: u64) -> u8 {
    let mut one = [0u8];
    recording.read(at, &mut one);
    recording.trouble().expect("the data is there");
    one[0]
}

fn case(seed: u64, writes: usize) -> Case {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut settings = DriveSettings::plain(Cache::Volatile, 512);
    settings.cache = [
        Cache::Volatile,
        Cache::Volatile,
        Cache::Protected,
        Cache::None,
    ][random.random_range(0..4)];
    settings.flush = if random.random_bool(0.85) {
        Honesty::Honoured
    } else {
        Honesty::Ignored
    };
    settings.fua = if random.random_bool(0.85) {
        Honesty::Honoured
    } else {
        Honesty::Ignored
    };
    settings.survivors = if random.random_bool(0.7) {
        Survivors::Any
    } else {
        Survivors::Prefix
    };
    settings.in_flight = [
        InFlight::Any,
        InFlight::Any,
        InFlight::Prefix,
        InFlight::None,
    ][random.random_range(0..4)];
    settings.atomic_write_bytes = [512, 512, 1024, 2048][random.random_range(0..4)];
    settings.atomic_boundary_bytes = [0, 0, 2048][random.random_range(0..3)];
    settings.cache_bytes = random
        .random_bool(0.2)
        .then(|| random.random_range(1..6) * BLOCK);

    let mut commands: Vec<Command> = Vec::new();
    let mut data = vec![0u8; 512];
    let mut open: Vec<Command> = Vec::new();
    let mut event = 0u64;
    let mut left = writes;
    let mut value = 1u8;
    // The base image: block b holds 200 + b.
    for block in 0..BLOCKS {
        let at = data.len() as u64;
        data.extend(std::iter::repeat_n(200 + block as u8, 512));
        commands.push(Command {
            kind: Kind::Write,
            offset_bytes: block * BLOCK,
            length_bytes: BLOCK,
            submitted: event,
            completed: event + 1,
            data_at: at,
            completed_ns: 0,
            errno: 0,
        });
        event += 2;
    }
    let base = event;
    while left > 0 || !open.is_empty() {
        let depth = open.len();
        if left > 0 && (depth == 0 || (depth < 3 && random.random_bool(0.5))) {
            let kind = match random.random_range(0..10) {
                0..=5 => Kind::Write,
                6 => Kind::WriteFua,
                7 => Kind::Discard,
                8 => Kind::WriteZeroes,
                _ => Kind::Flush,
            };
            let (mut first, mut blocks) = (0, 0);
            if kind != Kind::Flush {
                first = random.random_range(0..BLOCKS);
                blocks = random.random_range(1..=2u64.min(BLOCKS - first));
                left -= 1;
            }
            let at = data.len() as u64;
            if matches!(kind, Kind::Write | Kind::WriteFua) {
                for _ in 0..blocks {
                    // Sometimes the same bytes again: images must be told by content.
                    let byte = if random.random_bool(0.15) { 1 } else { value };
                    value = value.wrapping_add(1).max(1);
                    data.extend(std::iter::repeat_n(byte, 512));
                }
            }
            open.push(Command {
                kind,
                offset_bytes: first * BLOCK,
                length_bytes: blocks * BLOCK,
                submitted: event,
                completed: 0,
                data_at: at,
                completed_ns: 0,
                errno: u16::from(kind != Kind::Flush && random.random_bool(0.03)) * 5,
            });
        } else {
            let mut command = open.swap_remove(random.random_range(0..depth));
            command.completed = event;
            commands.push(command);
        }
        event += 1;
    }
    let header = IndexHeader {
        entries: commands.len() as u64,
        device_bytes: BLOCKS * BLOCK,
        base,
        max_depth: 3,
    };
    Case {
        recording: Recording::from_parts(header, commands, data),
        settings,
    }
}

fn value_of(recording: &Recording, command: &Command, block: u64) -> u8 {
    match command.kind {
        Kind::Write | Kind::WriteFua => byte(
            recording,
            command.data_at + (block * BLOCK - command.offset_bytes),
        ),
        _ => 0,
    }
}

fn touches(command: &Command, block: u64) -> bool {
    (command.offset_bytes..command.offset_bytes + command.length_bytes).contains(&(block * BLOCK))
}

/// Every image a cut at `cut` can leave; `None` when there are too many subsets to try.
fn naive(case: &Case, cut: u64) -> Option<BTreeSet<Image>> {
    let settings = &case.settings;
    let header = case.recording.header();
    let all: Vec<&Command> = case
        .recording
        .commands()
        .iter()
        .filter(|c| c.errno == 0)
        .collect();
    let data: Vec<&Command> = all
        .iter()
        .copied()
        .filter(|c| c.kind != Kind::Flush && c.completed >= header.base)
        .collect();
    let cached = |c: &Command| {
        settings.cache == Cache::Volatile
            && !(c.kind == Kind::WriteFua && settings.fua == Honesty::Honoured)
    };
    let durable = |c: &Command| {
        if c.completed >= cut {
            return false;
        }
        if !cached(c) {
            return true;
        }
        let flushed = settings.flush == Honesty::Honoured
            && all
                .iter()
                .any(|f| f.kind == Kind::Flush && c.completed < f.submitted && f.completed < cut);
        let newer: u64 = data
            .iter()
            .filter(|o| cached(o) && o.completed > c.completed && o.completed < cut)
            .map(|o| o.length_bytes)
            .sum();
        flushed
            || settings
                .cache_bytes
                .is_some_and(|capacity| newer >= capacity)
    };
    let fixed: Vec<&Command> = data.iter().copied().filter(|c| durable(c)).collect();
    let mut completed: Vec<&Command> = data
        .iter()
        .copied()
        .filter(|c| c.completed < cut && !durable(c))
        .collect();
    completed.sort_by_key(|c| c.completed);
    let mut flying: Vec<&Command> = data
        .iter()
        .copied()
        .filter(|c| c.submitted < cut && c.completed >= cut)
        .collect();
    flying.sort_by_key(|c| c.submitted);

    let fragments_of = |command: &Command| -> Vec<Vec<u64>> {
        let blocks: Vec<u64> = (0..BLOCKS).filter(|b| touches(command, *b)).collect();
        let end = command.offset_bytes + command.length_bytes;
        let boundary = u64::from(settings.atomic_boundary_bytes);
        let crosses =
            boundary != 0 && (command.offset_bytes + 1..end).any(|byte| byte % boundary == 0);
        let atomic = command.kind != Kind::Discard
            && command.length_bytes <= u64::from(settings.atomic_write_bytes)
            && !crosses;
        if atomic {
            vec![blocks]
        } else {
            blocks.into_iter().map(|b| vec![b]).collect()
        }
    };
    let mut fragments: Vec<(&Command, Vec<u64>)> = Vec::new();
    for command in &completed {
        fragments.extend(
            fragments_of(command)
                .into_iter()
                .map(|blocks| (*command, blocks)),
        );
    }
    let split = fragments.len();
    for command in &flying {
        fragments.extend(
            fragments_of(command)
                .into_iter()
                .map(|blocks| (*command, blocks)),
        );
    }
    if fragments.len() > 13 {
        return None;
    }
    let mut images = BTreeSet::new();
    for subset in 0u32..1 << fragments.len() {
        let kept = |index: usize| subset >> index & 1 == 1;
        let is_prefix = |from: usize, to: usize| (from + 1..to).all(|i| !kept(i) || kept(i - 1));
        let flying_kept = (split..fragments.len()).any(kept);
        if settings.survivors == Survivors::Prefix
            && (!is_prefix(0, split) || (flying_kept && !(0..split).all(kept)))
        {
            continue;
        }
        match settings.in_flight {
            InFlight::Any => {}
            InFlight::Prefix if is_prefix(split, fragments.len()) => {}
            InFlight::None if !flying_kept => {}
            _ => continue,
        }
        let mut partial: Vec<Image> = vec![Vec::new()];
        for block in 0..BLOCKS {
            let mut survivors: Vec<&Command> = fixed
                .iter()
                .copied()
                .filter(|c| touches(c, block))
                .collect();
            for (index, (command, blocks)) in fragments.iter().enumerate() {
                if kept(index) && blocks.contains(&block) {
                    survivors.push(command);
                }
            }
            let mut values: BTreeSet<u8> = survivors
                .iter()
                .filter(|c| !survivors.iter().any(|other| c.completed < other.submitted))
                .map(|c| value_of(&case.recording, c, block))
                .collect();
            if survivors.is_empty() {
                values.insert(200 + block as u8);
            }
            partial = partial
                .iter()
                .flat_map(|image| {
                    values
                        .iter()
                        .map(move |v| image.iter().copied().chain([*v]).collect())
                })
                .collect();
        }
        images.extend(partial);
    }
    Some(images)
}

/// What the fast enumerator gives at every cut, as images.
fn compare(case: &Case, limits: Limits) -> (u64, u64) {
    let base = SharedMemory::new("base", BLOCKS * BLOCK).expect("memfd");
    replay_to_base(&case.recording, &case.settings, &base);
    let mut explorer = Explorer::new(&case.recording, &case.settings, &base, Seed(1));
    let end = case
        .recording
        .commands()
        .iter()
        .map(|c| c.completed)
        .max()
        .unwrap_or(0)
        + 1;
    let value = |source: Source, block: u64| match source {
        Source::Base => 200 + block as u8,
        Source::Log(at) => byte(&case.recording, at),
        Source::Fill(byte) => byte,
    };
    let (mut compared, mut sampled) = (0, 0);
    loop {
        if let Some(expected) = naive(case, explorer.position()) {
            let found = crash_states(&mut explorer, limits, Seed(1));
            let mut durable: Image = (0..BLOCKS).map(|block| 200 + block as u8).collect();
            for change in explorer.changes() {
                durable[change.unit as usize] = value(change.source, change.unit);
            }
            let images: Vec<Image> = found
                .states
                .iter()
                .map(|state| {
                    let mut image = durable.clone();
                    for (unit, source) in &state.overrides {
                        image[*unit as usize] = value(*source, *unit);
                    }
                    image
                })
                .collect();
            let as_set: BTreeSet<Image> = images.iter().cloned().collect();
            let ids: BTreeSet<_> = found.states.iter().map(|state| state.image).collect();
            assert_eq!(images.len(), as_set.len(), "an image is listed twice");
            assert_eq!(ids.len(), as_set.len(), "image ids and images disagree");
            if found.exhaustive {
                assert_eq!(
                    as_set,
                    expected,
                    "at cut {} of {:?}",
                    explorer.position(),
                    case.settings
                );
                assert_eq!(
                    found.possible,
                    expected.len().into(),
                    "at cut {}",
                    explorer.position()
                );
                compared += 1;
            } else {
                assert!(
                    as_set.is_subset(&expected),
                    "sampled an impossible image at {}",
                    explorer.position()
                );
                assert!(found.possible >= expected.len().into());
                sampled += 1;
            }
        }
        if explorer.position() >= end {
            return (compared, sampled);
        }
        explorer.step();
    }
}

#[test]
fn logs_of_twelve_writes_give_the_same_set_of_images_as_brute_force() {
    let (mut compared, mut sampled) = (0, 0);
    for seed in 0..300 {
        let (c, s) = compare(
            &case(seed, 12),
            Limits {
                exhaustive: 1 << 16,
                sampled: 64,
            },
        );
        compared += c;
        sampled += s;
    }
    println!("{compared} cuts compared, {sampled} sampled");
    assert!(compared > 5_000, "only {compared} cuts could be compared");
    assert_eq!(sampled, 0, "a component of so small a log was not listed");
}

#[test]
fn sampled_states_are_possible_ones() {
    let mut sampled = 0;
    for seed in 1000..1100 {
        sampled += compare(
            &case(seed, 12),
            Limits {
                exhaustive: 4,
                sampled: 16,
            },
        )
        .1;
    }
    assert!(sampled > 300, "only {sampled} cuts were sampled");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn small_random_logs_agree_with_brute_force(seed in any::<u64>(), writes in 1usize..8) {
        compare(&case(seed, writes), Limits { exhaustive: 1 << 16, sampled: 64 });
    }
}
