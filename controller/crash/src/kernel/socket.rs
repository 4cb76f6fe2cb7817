//! Unix sockets that carry descriptors.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Longest message of the control protocol.
pub const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Sends one length-prefixed message, with a descriptor if there is one.
///
/// # Errors
/// The socket's error; `InvalidInput` for a message above [`MAX_MESSAGE_BYTES`].
pub fn send(socket: &mut UnixStream, message: &[u8], descriptor: Option<RawFd>) -> io::Result<()> {
    if message.len() > MAX_MESSAGE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "control message too long",
        ));
    }
    let length = u32::try_from(message.len())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?
        .to_le_bytes();
    let descriptors: Vec<RawFd> = descriptor.into_iter().collect();
    let control = [ControlMessage::ScmRights(&descriptors)];
    let control: &[ControlMessage<'_>] = if descriptors.is_empty() {
        &[]
    } else {
        &control
    };
    let sent = sendmsg::<()>(
        socket.as_raw_fd(),
        &[IoSlice::new(&length)],
        control,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    if sent != length.len() {
        socket.write_all(&length[sent..])?;
    }
    socket.write_all(message)
}

/// Receives one message and the descriptor that came with it. `None` when the
/// other side is gone.
///
/// # Errors
/// The socket's error; `InvalidData` for a message above [`MAX_MESSAGE_BYTES`].
pub fn receive(socket: &mut UnixStream) -> io::Result<Option<(Vec<u8>, Option<OwnedFd>)>> {
    let mut length = [0u8; 4];
    let mut descriptor = None;
    let got = {
        let mut space = nix::cmsg_space!([RawFd; 1]);
        let mut parts = [IoSliceMut::new(&mut length)];
        let message = loop {
            match recvmsg::<()>(
                socket.as_raw_fd(),
                &mut parts,
                Some(&mut space),
                MsgFlags::MSG_CMSG_CLOEXEC,
            ) {
                Err(nix::errno::Errno::EINTR) => {}
                other => break other?,
            }
        };
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(descriptors) = control {
                for fd in descriptors {
                    // SAFETY: the kernel just installed this descriptor for us.
                    descriptor = Some(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
        }
        message.bytes
    };
    if got == 0 {
        return Ok(None);
    }
    socket.read_exact(&mut length[got..])?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_MESSAGE_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "control message too long",
        ));
    }
    let mut message = vec![0u8; length];
    socket.read_exact(&mut message)?;
    Ok(Some((message, descriptor)))
}
