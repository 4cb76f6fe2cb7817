//! Why an acknowledged record was lost, as far as the write log shows.

use plugpull_crash::log::index::Kind;
use plugpull_crash::log::reader::Recording;
use plugpull_model::drive::{DriveSettings, Honesty, PlantedFault};
use plugpull_model::units::Position;
use plugpull_model::verdict::{Breach, Cause};

/// The cause of a breach: a flush between the record's last write and its
/// acknowledgement, or none; and what the drive is set to do with it.
#[must_use]
pub fn cause(
    recording: &Recording,
    settings: &DriveSettings,
    breach: &Breach,
    issued_at: Option<Position>,
) -> Cause {
    let planted = settings.faults.iter().any(|fault| {
        matches!(
            fault,
            PlantedFault::Shorn
                | PlantedFault::BitCorruption
                | PlantedFault::Misdirected
                | PlantedFault::Unserializable
                | PlantedFault::OneLostWrite
        )
    });
    if planted {
        return Cause::PlantedFault;
    }
    let (Some(acknowledged), Some(issued)) = (breach.acknowledged_at, issued_at) else {
        return Cause::Unexplained;
    };
    // Commands that belong to this record's window: submitted after it was
    // issued and completed before it was acknowledged.
    let window = || {
        recording
            .commands()
            .iter()
            .filter(|command| command.submitted >= issued.0 && command.completed < acknowledged.0)
    };
    let flush = window().any(|command| command.kind == Kind::Flush && command.errno == 0);
    let fua = window().any(|command| command.kind == Kind::WriteFua && command.errno == 0);
    match (flush, fua) {
        (true, _) if settings.flush == Honesty::Ignored => Cause::FlushIgnored,
        (false, true) if settings.fua == Honesty::Ignored => Cause::FuaIgnored,
        (false, false) => Cause::NoFlushBeforeAcknowledgement,
        _ => Cause::Unexplained,
    }
}
