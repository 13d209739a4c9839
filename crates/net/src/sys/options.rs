//! Socket options.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;

/// Sets an option whose value is an int.
pub(crate) fn set_int_option(
    fd: BorrowedFd<'_>,
    (level, name): (i32, i32),
    value: i32,
) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the value outlives the call and `len` is its size.
    let returned =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    check(returned as isize).map(|_| ())
}

/// Has a connected socket hear all again. One that did not name its port when it was bound has
/// another then.
pub(crate) fn disconnect(fd: BorrowedFd<'_>) -> io::Result<()> {
    let nobody =
        libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    // SAFETY: the address outlives the call, with the length given.
    let returned = unsafe {
        libc::connect(fd.as_raw_fd(), &raw const nobody, size_of_val(&nobody) as libc::socklen_t)
    };
    check(returned as isize).map(|_| ())
}

/// Sets which timestamps the socket takes and how it tells them (SOF_TIMESTAMPING_*).
pub(crate) fn set_timestamping(fd: BorrowedFd<'_>, flags: u32) -> io::Result<()> {
    set_int_option(fd, (libc::SOL_SOCKET, libc::SO_TIMESTAMPING), flags as i32)
}

/// Asks for buffers of that size, as far as the process may.
pub fn set_buffers(fd: BorrowedFd<'_>, receive_bytes: usize, send_bytes: usize) -> io::Result<()> {
    let receive = (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, receive_bytes);
    let send = (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, send_bytes);
    for (forced, polite, bytes) in [receive, send] {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        if set_int_option(fd, (libc::SOL_SOCKET, forced), bytes).is_err() {
            set_int_option(fd, (libc::SOL_SOCKET, polite), bytes)?;
        }
    }
    Ok(())
}

/// Lets a UDP socket receive GSO batches whole, or not.
pub fn set_gro(fd: BorrowedFd<'_>, is_on: bool) -> io::Result<()> {
    set_int_option(fd, (libc::SOL_UDP, libc::UDP_GRO), i32::from(is_on))
}

/// Reads an option whose value is an int.
#[cfg(test)]
pub(crate) fn int_option(fd: BorrowedFd<'_>, (level, name): (i32, i32)) -> io::Result<i32> {
    let mut value = 0_i32;
    let mut len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: both places outlive the call and `len` is the size of `value`.
    let returned = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    };
    check(returned as isize).map(|_| value)
}

/// The longest packet that an interface of the socket's network namespace carries.
pub(crate) fn interface_mtu(fd: BorrowedFd<'_>, name: &CStr) -> io::Result<u32> {
    // SAFETY: all zeroes is a request about no interface.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0.
    let room = request.ifr_name.len() - 1;
    for (to, &from) in request.ifr_name[..room].iter_mut().zip(name.to_bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request outlives the call.
    let returned = unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    check(returned as isize)?;
    // SAFETY: the kernel has written the MTU.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
}

/// The socket's memory figures, indexed by the kernel's SK_MEMINFO constants.
pub(crate) fn memory_info(fd: BorrowedFd<'_>) -> io::Result<[u32; 9]> {
    let mut values = [0_u32; 9];
    let mut len = size_of_val(&values) as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_MEMINFO);
    // SAFETY: both places outlive the call and `len` is the size of `values`.
    let returned = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, values.as_mut_ptr().cast(), &raw mut len)
    };
    check(returned as isize).map(|_| values)
}

/// Gives the socket's reuseport group the program that picks the member a datagram goes to.
pub(crate) fn attach_reuseport_filter(
    fd: BorrowedFd<'_>,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    attach(fd, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

/// Gives the socket the program that says how many bytes of a packet it gets, 0 for none of it.
pub(crate) fn attach_filter(fd: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    attach(fd, libc::SO_ATTACH_FILTER, program)
}

fn attach(fd: BorrowedFd<'_>, name: i32, program: &[libc::sock_filter]) -> io::Result<()> {
    let program =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let len = size_of_val(&program) as libc::socklen_t;
    // SAFETY: the kernel copies the program, which outlives the call, and only reads it.
    let returned = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, name, (&raw const program).cast(), len)
    };
    check(returned as isize).map(|_| ())
}
