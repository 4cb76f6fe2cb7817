//! Reduces a crash state that fails to one that lacks as little as possible
//! and still fails.
//!
//! Everything that is tried is a crash state of the same cut: the outcome of
//! each component is either that of the failing state, or that in which
//! everything survives, or one in between. So the reduced state is as possible
//! as the first one. The search is delta debugging (Zeller and Hildebrandt,
//! "Simplifying and Isolating Failure-Inducing Input", 2002) over components,
//! then, inside each that is left, the outcome that loses the fewest fragments.

use std::collections::BTreeMap;
use std::ops::Range;

use super::components::{Component, Settled, settle};
use super::enumerate::{Fragment, Fragments, Prepared, assemble, fragments, prepare};
use super::explorer::{CommandIndex, Explorer};
use super::{CrashState, Source, Unit};

/// A part of a command that a crash state lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The command's place in the recording.
    pub command: usize,
    /// The units of it that are lost.
    pub units: Range<Unit>,
}

/// A reduced crash state.
#[derive(Clone, Debug)]
pub struct Minimal {
    /// The state: it fails as the first one did.
    pub state: CrashState,
    /// What it lacks. Empty: the cut fails though nothing that was pending is lost.
    pub lost: Vec<Lost>,
    /// States that were tried.
    pub tried: u32,
    /// Whether nothing of `lost` can be given back without passing. Not if the
    /// budget ended the search.
    pub is_minimal: bool,
}

/// One component in which the failing state differs from "all kept".
struct Part {
    place: usize,
    failing: Settled,
}

struct Search<'e, 'a, 'f, E> {
    explorer: &'e mut Explorer<'a>,
    fragments: Fragments,
    one: Prepared,
    kept: Vec<Settled>,
    fails: &'f mut dyn FnMut(&CrashState) -> Result<bool, E>,
    budget: u32,
    tried: u32,
}

/// Reduces `state`, a crash state at the explorer's position that fails, with
/// at most `budget` calls of `fails`. `None` if the state is none of this cut.
///
/// # Errors
/// Those of `fails`.
pub fn minimise<E>(
    explorer: &mut Explorer<'_>,
    state: &CrashState,
    budget: u32,
    fails: &mut dyn FnMut(&CrashState) -> Result<bool, E>,
) -> Result<Option<Minimal>, E> {
    let fragments = fragments(explorer);
    let prepared = prepare(explorer, &fragments);
    for one in prepared {
        let failing: Vec<Settled> = one
            .components
            .iter()
            .map(|part| restricted(explorer, part, state))
            .collect();
        let sum = failing.iter().fold(
            explorer.durable_image().0.wrapping_add(one.constant.change),
            |sum, part| sum.wrapping_add(part.change),
        );
        if sum != state.image.0 {
            continue;
        }
        let mut search = Search {
            explorer,
            fragments,
            kept: Vec::new(),
            one,
            fails,
            budget,
            tried: 0,
        };
        search.keep_all();
        return search.run(failing).map(Some);
    }
    Ok(None)
}

/// What `state` holds in the units of a component.
fn restricted(explorer: &mut Explorer<'_>, part: &Component, state: &CrashState) -> Settled {
    let choices: Vec<(Unit, Source)> = part
        .units
        .iter()
        .map(|unit| {
            let place = state
                .overrides
                .binary_search_by_key(unit, |(unit, _)| *unit);
            let source = match place {
                Ok(at) => state.overrides[at].1,
                Err(_) => explorer.durable_source(*unit),
            };
            (*unit, source)
        })
        .collect();
    super::components::settled(explorer, &choices)
}

impl<E> Search<'_, '_, '_, E> {
    fn keep_all(&mut self) {
        let everything = vec![true; self.one.branch.free.len()];
        for part in &mut self.one.components {
            let settled = settle(self.explorer, &self.fragments.list, part, &everything, true);
            self.kept.push(settled);
        }
    }

    fn run(&mut self, failing: Vec<Settled>) -> Result<Minimal, E> {
        let mut parts: Vec<Part> = failing
            .into_iter()
            .enumerate()
            .filter(|(place, failing)| failing.change != self.kept[*place].change)
            .map(|(place, failing)| Part { place, failing })
            .collect();
        let mut done = true;
        if self.still_fails(&[], &mut done)? {
            parts.clear();
        }
        self.reduce(&mut parts, &mut done)?;
        for index in 0..parts.len() {
            self.refine(&mut parts, index, &mut done)?;
        }
        let chosen: Vec<&Part> = parts.iter().collect();
        let state = self.state(&chosen);
        let lost = self.lost(&parts);
        Ok(Minimal {
            state,
            lost,
            tried: self.tried,
            is_minimal: done,
        })
    }

    /// Delta debugging: complements of ever smaller pieces.
    fn reduce(&mut self, parts: &mut Vec<Part>, done: &mut bool) -> Result<(), E> {
        let mut pieces = 2;
        while parts.len() > 1 {
            let size = parts.len().div_ceil(pieces);
            let mut smaller = None;
            for start in (0..parts.len()).step_by(size) {
                let end = (start + size).min(parts.len());
                let rest: Vec<&Part> = parts[..start].iter().chain(&parts[end..]).collect();
                if !rest.is_empty() && self.still_fails(&rest, done)? {
                    smaller = Some(start..end);
                    break;
                }
            }
            match smaller {
                Some(gone) => {
                    parts.drain(gone);
                    pieces = (pieces - 1).max(2);
                }
                None if size == 1 => break,
                None => pieces = (pieces * 2).min(parts.len()),
            }
        }
        Ok(())
    }

    /// Inside one component: the outcome that loses the fewest fragments.
    fn refine(&mut self, parts: &mut [Part], index: usize, done: &mut bool) -> Result<(), E> {
        let place = parts[index].place;
        let now = self.lost_of(place, &parts[index].failing).len();
        let outcomes = self.one.components[place].outcomes.clone();
        let mut fewer: Vec<(usize, Settled)> = Vec::new();
        for outcome in outcomes {
            let count = self.lost_of(place, &outcome).len();
            if outcome.change != self.kept[place].change && count < now {
                fewer.push((count, outcome));
            }
        }
        fewer.sort_by_key(|(count, _)| *count);
        for (_, outcome) in fewer {
            let before = std::mem::replace(&mut parts[index].failing, outcome);
            let chosen: Vec<&Part> = parts.iter().collect();
            if self.still_fails(&chosen, done)? {
                return Ok(());
            }
            parts[index].failing = before;
        }
        Ok(())
    }

    fn state(&self, parts: &[&Part]) -> CrashState {
        let mut outcomes: Vec<&Settled> = self.kept.iter().collect();
        for part in parts {
            outcomes[part.place] = &part.failing;
        }
        let all = std::iter::once(&self.one.constant).chain(outcomes);
        assemble(self.explorer.durable_image(), all, self.one.branch.doubtful)
    }

    fn still_fails(&mut self, parts: &[&Part], done: &mut bool) -> Result<bool, E> {
        if self.tried >= self.budget {
            *done = false;
            return Ok(false);
        }
        self.tried += 1;
        let state = self.state(parts);
        (self.fails)(&state)
    }

    fn lost(&mut self, parts: &[Part]) -> Vec<Lost> {
        let mut numbers: Vec<usize> = Vec::new();
        for part in parts {
            numbers.extend(self.lost_of(part.place, &part.failing));
        }
        numbers.sort_unstable();
        let mut by_command: BTreeMap<CommandIndex, Vec<Range<Unit>>> = BTreeMap::new();
        for number in numbers {
            let Fragment { command, units } = self.fragments.list[number].clone();
            let ranges = by_command.entry(command).or_default();
            match ranges.last_mut() {
                Some(last) if last.end == units.start => last.end = units.end,
                _ => ranges.push(units),
            }
        }
        by_command
            .into_iter()
            .flat_map(|(command, ranges)| {
                ranges.into_iter().map(move |units| Lost { command, units })
            })
            .collect()
    }

    /// The fragments of a component that an outcome of it lacks: those whose
    /// content is not there though nothing newer took its place.
    fn lost_of(&mut self, place: usize, outcome: &Settled) -> Vec<usize> {
        let explorer = &mut *self.explorer;
        let part = &self.one.components[place];
        let mut holders: BTreeMap<Unit, (u128, Option<CommandIndex>)> = BTreeMap::new();
        for (unit, sure) in part.units.iter().zip(&part.sure) {
            let there = outcome
                .overrides
                .binary_search_by_key(unit, |(unit, _)| *unit);
            let source = match there {
                Ok(at) => outcome.overrides[at].1,
                Err(_) => explorer.durable_source(*unit),
            };
            let term = explorer.contents.term(*unit, source);
            let touching = part
                .fragments
                .iter()
                .map(|index| &self.fragments.list[*index])
                .filter(|fragment| fragment.units.contains(unit))
                .map(|fragment| fragment.command);
            let mut holder = None;
            for command in sure.iter().copied().chain(touching) {
                let own = explorer.source(command, *unit);
                if explorer.contents.term(*unit, own) == term {
                    holder = holder.max(Some(command));
                }
            }
            holders.insert(*unit, (term, holder));
        }
        let mut lost = Vec::new();
        for index in &part.fragments {
            let fragment = &self.fragments.list[*index];
            let submitted = explorer.command(fragment.command).submitted;
            let gone = fragment.units.clone().any(|unit| {
                let Some((term, holder)) = holders.get(&unit) else {
                    return false;
                };
                let own = explorer.source(fragment.command, unit);
                let newer =
                    holder.is_none_or(|holder| explorer.command(holder).completed < submitted);
                newer && explorer.contents.term(unit, own) != *term
            });
            if gone {
                lost.push(*index);
            }
        }
        lost
    }
}
