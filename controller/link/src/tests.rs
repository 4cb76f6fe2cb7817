use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// Reads what was queued, in the pieces in which it was queued; an empty piece times out.
#[derive(Default)]
struct Wire {
    pieces: VecDeque<Vec<u8>>,
    sent: Vec<u8>,
    room: Option<usize>,
}

impl Read for Wire {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(piece) = self.pieces.front_mut() else {
            return Ok(0);
        };
        if piece.is_empty() {
            self.pieces.pop_front();
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let got = piece.len().min(out.len());
        out[..got].copy_from_slice(&piece[..got]);
        piece.drain(..got);
        if piece.is_empty() {
            self.pieces.pop_front();
        }
        Ok(got)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self
            .room
            .map_or(bytes.len(), |room| room.saturating_sub(self.sent.len()));
        self.sent.extend_from_slice(&bytes[..room.min(bytes.len())]);
        Ok(room.min(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn reading(pieces: &[&[u8]]) -> Framed<Wire> {
    let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
    Framed::new(Wire {
        pieces,
        ..Wire::default()
    })
}

fn encoded(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut framed = Framed::new(Wire::default());
    for payload in frames {
        framed.send(&Frame::new(payload.clone()).unwrap()).unwrap();
    }
    framed.stream.sent
}

#[test]
fn a_frame_is_a_little_endian_length_and_its_payload() {
    assert_eq!(
        encoded(&[b"ab".to_vec(), Vec::new()]),
        b"\x02\0\0\0ab\0\0\0\0"
    );
}

#[test]
fn the_longest_frame_is_carried_and_a_longer_one_cannot_be_made() {
    let longest = vec![7; MAX_FRAME_BYTES];
    let mut framed = reading(&[&encoded(std::slice::from_ref(&longest))]);
    assert_eq!(framed.receive().unwrap().unwrap().into_payload(), longest);
    assert!(matches!(
        Frame::new(vec![0; MAX_FRAME_BYTES + 1]),
        Err(LinkError::TooLong { .. })
    ));
}

#[test]
fn an_announced_length_beyond_the_bound_is_refused_before_anything_is_read_for_it() {
    let mut framed = reading(&[b"\xff\xff\xff\xffrest"]);
    let error = framed.receive().unwrap_err();
    assert!(
        matches!(
            error,
            LinkError::TooLong {
                length_bytes: 0xffff_ffff
            }
        ),
        "{error}"
    );
    assert!(framed.partial.capacity() < 4096);
    assert!(matches!(
        framed.receive(),
        Err(LinkError::OutOfStep { side: "receive" })
    ));
}

#[test]
fn a_length_that_is_announced_and_never_comes_allocates_only_what_came() {
    let mut framed = reading(&[b"\0\0\x01\0abc"]);
    assert!(matches!(
        framed.receive(),
        Err(LinkError::Truncated { got_bytes: 7 })
    ));
    assert!(framed.partial.capacity() < 4096);
}

#[test]
fn a_read_that_times_out_inside_a_frame_loses_nothing() {
    let mut framed = reading(&[b"\x04\0", b"", b"\0\0ab", b"", b"cd"]);
    for _ in 0..2 {
        assert!(matches!(framed.receive(), Err(LinkError::Stream(_))));
    }
    assert_eq!(framed.receive().unwrap().unwrap().payload(), b"abcd");
    assert_eq!(framed.receive().unwrap(), None);
}

#[test]
fn nothing_is_sent_after_a_frame_that_went_out_in_part() {
    let mut framed = Framed::new(Wire {
        room: Some(5),
        ..Wire::default()
    });
    let frame = Frame::new(*b"abc").unwrap();
    assert!(matches!(framed.send(&frame), Err(LinkError::Stream(_))));
    assert!(matches!(
        framed.send(&frame),
        Err(LinkError::OutOfStep { side: "send" })
    ));
    assert_eq!(framed.stream.sent.len(), 5);
}

proptest! {
    #[test]
    fn a_stream_cut_anywhere_yields_a_prefix_of_what_was_sent(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
        cut in any::<prop::sample::Index>(),
        piece_bytes in 1..9_usize,
    ) {
        let bytes = encoded(&frames);
        let cut = cut.index(bytes.len() + 1);
        let pieces: Vec<&[u8]> = bytes[..cut].chunks(piece_bytes).collect();
        let mut framed = reading(&pieces);
        let mut got = Vec::new();
        let end = loop {
            match framed.receive() {
                Ok(Some(frame)) => got.push(frame.into_payload()),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        prop_assert_eq!(&got[..], &frames[..got.len()]);
        let whole = encoded(&got).len();
        match end {
            None => prop_assert_eq!(whole, cut),
            Some(LinkError::Truncated { got_bytes }) => prop_assert_eq!(whole + got_bytes, cut),
            Some(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn any_bytes_end_without_a_panic_and_within_the_bound(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut framed = reading(&[&bytes[..]]);
        while let Ok(Some(frame)) = framed.receive() {
            prop_assert!(frame.payload().len() <= MAX_FRAME_BYTES);
        }
    }
}
