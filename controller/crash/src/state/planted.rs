//! Planted faults that damage crash images: `bit-corruption` and `misdirected`.

use plugpull_model::drive::PlantedFault;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::explorer::Explorer;
use super::{CrashState, ImageId, Planted, Source, Unit};

/// Damages each state as the drive's planted faults say. What is hit is chosen
/// by the faults seed and the image, among everything written since `base`
/// that survives; a state in which nothing does is left alone.
pub(super) fn damage(explorer: &mut Explorer<'_>, states: &mut [CrashState]) {
    let planted = |fault: PlantedFault| explorer.settings.faults.contains(&fault);
    let (flips, misdirects) = (
        planted(PlantedFault::BitCorruption),
        planted(PlantedFault::Misdirected),
    );
    if !flips && !misdirects {
        return;
    }
    let last_unit = explorer.recording.header().device_bytes / explorer.unit_bytes();
    for state in states {
        let low = u64::try_from(state.image.0 & u128::from(u64::MAX)).unwrap_or(0);
        let mut random = ChaCha12Rng::seed_from_u64(explorer.faults_seed.derive("damage").0 ^ low);
        let durable = explorer.changes().len();
        let survivors = durable + state.overrides.len();
        if survivors == 0 {
            continue;
        }
        let chosen = random.random_range(0..survivors);
        let unit = match chosen.checked_sub(durable) {
            None => explorer.changes()[chosen].unit,
            Some(index) => state.overrides[index].0,
        };
        let source = content(explorer, state, unit);
        state.planted = if flips {
            Some(Planted::BitFlip {
                unit,
                bit: random.random_range(0..explorer.unit_bytes() * 8),
            })
        } else if unit + 1 < last_unit {
            Some(Planted::Misplaced {
                unit: unit + 1,
                source,
            })
        } else {
            None
        };
        state.image = damaged_id(explorer, state);
    }
}

/// What `unit` holds in `state`.
fn content(explorer: &Explorer<'_>, state: &CrashState, unit: Unit) -> Source {
    if let Ok(at) = state
        .overrides
        .binary_search_by_key(&unit, |(unit, _)| *unit)
    {
        return state.overrides[at].1;
    }
    explorer.durable_source(unit)
}

fn damaged_id(explorer: &mut Explorer<'_>, state: &CrashState) -> ImageId {
    match state.planted {
        None => state.image,
        Some(Planted::Misplaced { unit, source }) => {
            let before = content(explorer, state, unit);
            let change = explorer
                .contents
                .term(unit, source)
                .wrapping_sub(explorer.contents.term(unit, before));
            ImageId(state.image.0.wrapping_add(change))
        }
        Some(Planted::BitFlip { unit, bit }) => {
            // Not by content: an image whose flip restores another's bytes is
            // judged twice, which costs time and no truth.
            let mut hasher = blake3::Hasher::new_derive_key("plugpull 1 flipped bit");
            hasher.update(&state.image.0.to_le_bytes());
            hasher.update(&unit.to_le_bytes());
            hasher.update(&bit.to_le_bytes());
            let mut half = [0u8; 16];
            half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
            ImageId(u128::from_le_bytes(half))
        }
    }
}
