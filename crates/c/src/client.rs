//! Clients, calls and replies.

use std::ffi::c_char;
use std::rc::Rc;
use std::time::Duration;

use tailcut::{CallOptions, ClientBuilder, KeySource};

use crate::error::{Code, Failed, guard};
use crate::pointer;

/// A client of one server or router. It belongs to one thread at a time, with all its calls and
/// replies; make one for each thread. It works only while one of its functions runs.
pub struct Client {
    client: Rc<tailcut::Client>,
}

/// A call that has been started.
pub struct Call {
    /// Before the client that it borrows: fields are dropped in this order. `None` once waited for.
    pending: tailcut::Pending<'static>,
    client: Rc<tailcut::Client>,
}

/// A reply.
pub struct Reply {
    /// Before the client that it borrows.
    reply: tailcut::Reply<'static>,
    _client: Rc<tailcut::Client>,
}

/// How a client is opened; all zero is the default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ClientOptions {
    /// How long a call waits for its reply where it does not say otherwise, ns; 0: a second. At
    /// most 60 s.
    pub timeout_ns: u64,
    /// Poll instead of sleeping: seven times less latency at the price of a core.
    pub busy_poll: bool,
    /// The file of the client's keys, where the service is sealed, which is read again when it
    /// changes; null: it is not. The text is not used after the client is open.
    pub seal_file: *const c_char,
}

/// How a call is made; all zero is the default.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CallSettings {
    /// How long it waits for its reply, ns; 0: as the client says.
    pub timeout_ns: u64,
    /// The request may run more than once: routers may clone it and send it again.
    pub idempotent: bool,
}

/// Opens a client of the server or router at `target`, HOST:PORT. `options` may be null. Nothing is
/// sent yet.
///
/// # Safety
///
/// The texts end by a zero, and `client` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_client_open(
    target: *const c_char,
    options: *const ClientOptions,
    client: *mut *mut Client,
) -> Code {
    guard(|| {
        // SAFETY: as the header asks.
        let (target, options) = unsafe { (pointer::text(target, "the target")?, options.as_ref()) };
        let mut builder = ClientBuilder::new();
        if let Some(&ClientOptions { timeout_ns, busy_poll, seal_file }) = options {
            if timeout_ns > 0 {
                builder = builder.timeout(Duration::from_nanos(timeout_ns));
            }
            if busy_poll {
                builder = builder.busy_poll();
            }
            // SAFETY: as the header asks.
            if let Some(file) = unsafe { pointer::file(seal_file, "the file of keys")? } {
                builder = builder.seal(KeySource::open(file).map_err(Failed::file)?);
            }
        }
        let opened = Client { client: Rc::new(builder.connect(target)?) };
        // SAFETY: as the header asks.
        unsafe { pointer::hand_out(client, opened) }
    })
}

/// Closes a client, as soon as its calls and replies are freed too. Null is allowed.
///
/// # Safety
///
/// It came from `tailcut_client_open` and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_client_free(client: *mut Client) {
    guard(|| {
        // SAFETY: as the header asks.
        drop(unsafe { pointer::take_back(client) });
        Ok(())
    });
}

/// Calls and waits for the reply, which is to be freed. `settings` may be null.
///
/// # Safety
///
/// The client is alive, `request` has `len` bytes, and `reply` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_call(
    client: *const Client,
    request: *const u8,
    len: usize,
    settings: *const CallSettings,
    reply: *mut *mut Reply,
) -> Code {
    guard(|| {
        // SAFETY: as the header asks.
        let client = unsafe { pointer::reference(client, "the client")? };
        // SAFETY: as the header asks.
        let (bytes, settings) = unsafe { (pointer::bytes(request, len)?, settings.as_ref()) };
        let (options, timeout) = client.settings(settings);
        let answered = client.client.call_with(bytes, options, timeout)?;
        // SAFETY: the reply borrows the client, which is where it is until the last Rc of it is
        // dropped, and has one that is dropped after it.
        let answered: tailcut::Reply<'static> = unsafe { std::mem::transmute(answered) };
        let answered = Reply { reply: answered, _client: client.client.clone() };
        // SAFETY: as the header asks.
        unsafe { pointer::hand_out(reply, answered) }
    })
}

/// Starts a call and returns at once, so that many can be outstanding. The call is to be waited
/// for, or freed.
///
/// # Safety
///
/// As `tailcut_call`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_start(
    client: *const Client,
    request: *const u8,
    len: usize,
    settings: *const CallSettings,
    call: *mut *mut Call,
) -> Code {
    guard(|| {
        // SAFETY: as the header asks.
        let client = unsafe { pointer::reference(client, "the client")? };
        // SAFETY: as the header asks.
        let (bytes, settings) = unsafe { (pointer::bytes(request, len)?, settings.as_ref()) };
        let (options, timeout) = client.settings(settings);
        let pending = client.client.start_with(bytes, options, timeout)?;
        // SAFETY: as for a reply: the call has an Rc of the client that it borrows.
        let pending: tailcut::Pending<'static> = unsafe { std::mem::transmute(pending) };
        let started = Call { pending, client: client.client.clone() };
        // SAFETY: as the header asks.
        unsafe { pointer::hand_out(call, started) }
    })
}

/// Looks at the socket once, and says whether the call has ended. Never waits.
///
/// # Safety
///
/// The call is alive, and `is_done` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_call_poll(call: *const Call, is_done: *mut bool) -> Code {
    guard(|| {
        // SAFETY: as the header asks.
        let (call, is_done) = unsafe {
            (pointer::reference(call, "the call")?, pointer::exclusive(is_done, "the result")?)
        };
        *is_done = call.pending.is_done()?;
        Ok(())
    })
}

/// Waits for a call's reply, which is to be freed. The call is freed, whatever comes of it.
///
/// # Safety
///
/// The call is alive and not used again, and `reply` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_call_wait(call: *mut Call, reply: *mut *mut Reply) -> Code {
    guard(|| {
        // SAFETY: as the header asks.
        let call = unsafe { pointer::take_back(call) };
        let Call { pending, client } = *call.ok_or_else(|| Failed::argument("the call is null"))?;
        let answered = Reply { reply: pending.wait()?, _client: client };
        // SAFETY: as the header asks.
        unsafe { pointer::hand_out(reply, answered) }
    })
}

/// Cancels a call, or gives its result up. Null is allowed.
///
/// # Safety
///
/// It came from `tailcut_start`, has not been waited for and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_call_free(call: *mut Call) {
    guard(|| {
        // SAFETY: as the header asks.
        drop(unsafe { pointer::take_back(call) });
        Ok(())
    });
}

/// A reply's bytes, which are there until it is freed; their number goes to `len`.
///
/// # Safety
///
/// The reply is alive, and `len` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_reply_bytes(reply: *const Reply, len: *mut usize) -> *const u8 {
    let mut bytes = std::ptr::null();
    guard(|| {
        // SAFETY: as the header asks.
        let (reply, len) = unsafe {
            (pointer::reference(reply, "the reply")?, pointer::exclusive(len, "the length")?)
        };
        *len = reply.reply.len();
        bytes = reply.reply.as_ptr();
        Ok(())
    });
    bytes
}

/// Frees a reply. Null is allowed.
///
/// # Safety
///
/// It is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tailcut_reply_free(reply: *mut Reply) {
    guard(|| {
        // SAFETY: as the header asks.
        drop(unsafe { pointer::take_back(reply) });
        Ok(())
    });
}

impl Client {
    /// What a call's settings come to.
    fn settings(&self, settings: Option<&CallSettings>) -> (CallOptions, Duration) {
        let CallSettings { timeout_ns, idempotent } = settings.copied().unwrap_or_default();
        let options = self.client.options();
        let timeout = match timeout_ns {
            0 => self.client.timeout(),
            timeout_ns => Duration::from_nanos(timeout_ns),
        };
        (CallOptions { idempotent: idempotent || options.idempotent, ..options }, timeout)
    }
}
