//! The nouns of Plugpull, its pure rules, and its seams as traits without I/O.
//!
//! Everything here is data or a pure function of data: no clock, no file, no
//! process. A [`scenario::Scenario`] (written by a person) and a seed give a
//! [`plan::Plan`]; running a plan gives trials with a [`ledger::Ledger`] and a
//! write log; judging crash images gives [`verdict::Finding`]s, which travel as
//! [`event::Event`]s to the reports.

pub mod coverage;
pub mod drive;
pub mod event;
pub mod ledger;
pub mod observation;
pub mod plan;
pub mod scenario;
pub mod seams;
pub mod seed;
pub mod stack;
pub mod units;
pub mod verdict;
pub mod workload;
