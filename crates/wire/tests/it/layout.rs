//! The layout tables of `docs/protocol/r2p2.md` are the layouts of the code.

use std::mem::offset_of;
use std::path::Path;

use tailcut_wire::r2p2::{
    BASE_LEN, BaseHeader, EXTENDED_LEN, FeedbackBody, ROUTED_LEN, ReplyHeader, RequestHeader,
    Route, SackBody,
};

#[test]
fn headers_have_their_announced_lengths() {
    assert_eq!(size_of::<BaseHeader>(), BASE_LEN);
    assert_eq!(size_of::<RequestHeader>(), EXTENDED_LEN);
    assert_eq!(size_of::<ReplyHeader>(), EXTENDED_LEN);
    assert_eq!(size_of::<RequestHeader>() + size_of::<Route>(), ROUTED_LEN);
}

/// Checks each row of one table: `| offset | size | field |`, the offset from `$start` on.
macro_rules! check_rows {
    ($start:expr, $layout:ty, $($field:ident),+) => {
        $({
            fn size<T>(_: fn(&$layout) -> &T) -> usize {
                size_of::<T>()
            }
            let row = format!(
                "| {} | {} | {} |",
                $start + offset_of!($layout, $field),
                size(|layout| &layout.$field),
                stringify!($field),
            );
            assert!(page().lines().any(|line| line.starts_with(&row)), "the page lacks `{row}`");
        })+
    };
}

#[test]
fn page_has_the_base_header() {
    check_rows!(0, BaseHeader, magic, header_size, type_policy, flags, rid, p_order);
}

#[test]
fn page_has_the_extension() {
    check_rows!(0, RequestHeader, rpc_id, message_len, flags, version, reserved, client_clock_us);
    check_rows!(0, RequestHeader, deadline_us, token, floor, segment_len, age_ms);
    check_rows!(0, ReplyHeader, rpc_id, message_len, flags, version, server_load, server_id);
    check_rows!(0, ReplyHeader, clock_echo_us, token, detail, segment_len, server_waiting);
}

#[test]
fn page_has_the_route_block() {
    check_rows!(EXTENDED_LEN, Route, client_ip, client_port, routed, returns, placement);
}

#[test]
fn page_has_the_payloads() {
    check_rows!(0, SackBody, base, granted, bitmap);
    check_rows!(0, FeedbackBody, epoch, placement_seen, received, concluded);
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol/r2p2.md");
    std::fs::read_to_string(path).expect("the protocol page")
}
