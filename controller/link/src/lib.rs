//! Framing and ledger transport over any Read + Write.
//!
//! The ledger lives outside the power domain that is cut, so that it crosses a wire which is cut as
//! well. What it needs from a [`Transport`], and no more:
//!
//! - frames arrive whole, unchanged, in order and once, or not at all: a prefix of what was sent;
//! - the end of the stream between two frames differs from one inside a frame, which is what a cut
//!   looks like;
//! - no peer can make the reader allocate more than one frame.
//!
//! A transport need not say which frames arrived. The loss of the ledger's tail may weaken a
//! verdict, and never creates a finding.
//!
//! [`Framed`] trusts its stream to carry bytes unchanged, as a pipe, a TCP stream or an encrypted
//! channel does. It has no checksum: one of its own would not stop a forger, and the channels that
//! need one have it. Do not run it over a bare serial line.

use std::io::{self, Read, Write};
use thiserror::Error;

/// The longest payload of a frame. Sixteen of the longest ledger lines.
pub const MAX_FRAME_BYTES: usize = 64 * 1024;

const HEADER_BYTES: usize = 4;

/// A payload that is known to fit a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame(Vec<u8>);

impl Frame {
    /// A frame of this payload, which may be empty.
    pub fn new(payload: impl Into<Vec<u8>>) -> Result<Self, LinkError> {
        let payload = payload.into();
        if payload.len() > MAX_FRAME_BYTES {
            return Err(LinkError::TooLong {
                length_bytes: payload.len() as u64,
            });
        }
        Ok(Self(payload))
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        &self.0
    }

    /// Gives up the payload.
    pub fn into_payload(self) -> Vec<u8> {
        self.0
    }
}

/// Why a frame was not carried.
#[derive(Debug, Error)]
pub enum LinkError {
    /// A length beyond the bound, announced by the peer or given to [`Frame::new`].
    #[error(
        "link: a frame of {length_bytes} bytes, the longest is {MAX_FRAME_BYTES}; split it, or check \
         that the peer speaks this protocol"
    )]
    TooLong {
        /// The length.
        length_bytes: u64,
    },
    /// The stream ended inside a frame.
    #[error(
        "link: the stream ended {got_bytes} bytes into a frame; the peer lost power or its \
         connection, and all frames before this one are good"
    )]
    Truncated {
        /// What came of the frame, its header included.
        got_bytes: usize,
    },
    /// An earlier failure left the stream inside a frame.
    #[error("link: used again after `{side}` failed inside a frame; open a new connection")]
    OutOfStep {
        /// `send` or `receive`.
        side: &'static str,
    },
    /// The stream failed.
    #[error("link: the stream failed: {0}; open a new connection, unless it only timed out")]
    Stream(#[from] io::Error),
}

/// Carries frames to one peer and back.
pub trait Transport {
    /// Hands a frame to the stream and flushes it. Success does not mean that the peer has it.
    fn send(&mut self, frame: &Frame) -> Result<(), LinkError>;

    /// Waits for the next frame; none when the peer ended the stream between two frames.
    ///
    /// After a [`LinkError::Stream`], such as a read that timed out, the call may be made again and
    /// loses nothing.
    fn receive(&mut self) -> Result<Option<Frame>, LinkError>;
}

/// Frames over a byte stream: a 32-bit little-endian length, then so many bytes.
#[derive(Debug)]
pub struct Framed<S> {
    stream: S,
    /// What has come of the frame being read, its header included.
    partial: Vec<u8>,
    cannot_send: bool,
    cannot_receive: bool,
}

impl<S> Framed<S> {
    /// Frames over `stream`.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            partial: Vec::new(),
            cannot_send: false,
            cannot_receive: false,
        }
    }
}

impl<S: Read> Framed<S> {
    /// Reads until `wanted` bytes of the frame are here, or the stream ends.
    fn fill(&mut self, wanted: usize) -> io::Result<bool> {
        let missing = wanted.saturating_sub(self.partial.len());
        // Grows with what comes, not with what the peer announced, and keeps it on an error.
        let got = self
            .stream
            .by_ref()
            .take(missing as u64)
            .read_to_end(&mut self.partial)?;
        Ok(got == missing)
    }

    fn announced_bytes(&self) -> Option<u64> {
        let header: [u8; HEADER_BYTES] = self.partial.get(..HEADER_BYTES)?.try_into().ok()?;
        Some(u64::from(u32::from_le_bytes(header)))
    }
}

impl<S: Read + Write> Transport for Framed<S> {
    fn send(&mut self, frame: &Frame) -> Result<(), LinkError> {
        if self.cannot_send {
            return Err(LinkError::OutOfStep { side: "send" });
        }
        // One write: a frame is not split between two packets without need.
        let mut bytes = Vec::with_capacity(HEADER_BYTES + frame.0.len());
        bytes.extend_from_slice(&(frame.0.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&frame.0);
        let sent = self
            .stream
            .write_all(&bytes)
            .and_then(|()| self.stream.flush());
        // How much of it went out is not known, so that no frame can follow.
        self.cannot_send = sent.is_err();
        Ok(sent?)
    }

    fn receive(&mut self) -> Result<Option<Frame>, LinkError> {
        if self.cannot_receive {
            return Err(LinkError::OutOfStep { side: "receive" });
        }
        let mut complete = self.fill(HEADER_BYTES)?;
        if let (true, Some(length_bytes)) = (complete, self.announced_bytes()) {
            if length_bytes > MAX_FRAME_BYTES as u64 {
                self.cannot_receive = true;
                return Err(LinkError::TooLong { length_bytes });
            }
            complete = self.fill(HEADER_BYTES + length_bytes as usize)?;
        }
        if !complete && self.partial.is_empty() {
            return Ok(None);
        }
        if !complete {
            self.cannot_receive = true;
            return Err(LinkError::Truncated {
                got_bytes: self.partial.len(),
            });
        }
        let mut frame = std::mem::take(&mut self.partial);
        frame.drain(..HEADER_BYTES);
        Ok(Some(Frame(frame)))
    }
}

#[cfg(test)]
mod tests;
