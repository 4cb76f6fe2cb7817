//! Whether a ledger can be of a plan.

use plugpull_model::ledger::{Ledger, OperationId};
use plugpull_model::plan::PlannedCell;

use crate::look::PLANNED_VERSION;

/// Why a ledger is not of this plan, and so is void.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LedgerMisfit {
    /// It holds an operation that the plan never issues.
    #[error(
        "the ledger holds stream {} sequence {} version {}, which the plan of this cell never issues; the ledger is void",
        .0.stream, .0.sequence, .0.version
    )]
    NotPlanned(OperationId),
}

/// Checks, once for a trial, that the plan issues every operation of the ledger. [`judge`](crate::judge())
/// knows no place for any other and does not look at it.
///
/// # Errors
/// Names the first operation that the plan does not issue.
pub fn check_ledger(cell: &PlannedCell, ledger: &Ledger) -> Result<(), LedgerMisfit> {
    let mut writers = cell.workload.writers.iter().collect::<Vec<_>>();
    writers.sort_by_key(|writer| writer.stream);
    for (id, _) in ledger.iter() {
        let planned = id.version == PLANNED_VERSION
            && writers
                .binary_search_by_key(&id.stream, |writer| writer.stream)
                .ok()
                .and_then(|index| writers.get(index))
                .is_some_and(|writer| id.sequence.0 < u64::from(writer.records));
        if !planned {
            return Err(LedgerMisfit::NotPlanned(*id));
        }
    }
    Ok(())
}
