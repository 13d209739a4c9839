-- R2P2 version 1 and tailcut's extension of it, as docs/protocol/r2p2.md lays them down.
--
-- wireshark -X lua_script:tools/wireshark/r2p2.lua capture.pcap, or copy the file to Wireshark's personal Lua plugins.
--
-- `parse` makes the decisions of Packet::parse in crates/wire in the same order and gives the same reasons, and `summary`
-- the line of its Display; tools/wireshark/check.sh holds both to it. Messages are not reassembled.

local r2p2 = Proto("r2p2", "R2P2 remote procedure calls")

-- Written by `cargo xtask dissectors` from crates/wire, up to the next mark.
local wire = {
    MAGIC = 204, BASE_LEN = 8, EXTENDED_LEN = 48, ROUTED_LEN = 72, EXTENSION_VERSION = 1, V1_SEGMENT_LEN = 1464,
    V1_FIRST_LEN = 14, V1_PACKETS_MAX = 254,
    position = {
        FIRST = 128, LAST = 64, ONLY = 192,
    },
    BaseHeader = {
        len = 8, magic = { 0, 1 }, header_size = { 1, 1 }, type_policy = { 2, 1 }, flags = { 3, 1 },
        rid = { 4, 2 }, p_order = { 6, 2 },
    },
    RequestHeader = {
        len = 48, base = { 0, 8 }, rpc_id = { 8, 8 }, message_len = { 16, 4 }, flags = { 20, 1 },
        version = { 21, 1 }, reserved = { 22, 2 }, client_clock_us = { 24, 4 }, deadline_us = { 28, 4 },
        token = { 32, 8 }, floor = { 40, 4 }, segment_len = { 44, 2 }, age_ms = { 46, 2 },
    },
    ReplyHeader = {
        len = 48, base = { 0, 8 }, rpc_id = { 8, 8 }, message_len = { 16, 4 }, flags = { 20, 1 },
        version = { 21, 1 }, server_load = { 22, 2 }, server_id = { 24, 4 }, clock_echo_us = { 28, 4 },
        token = { 32, 8 }, detail = { 40, 4 }, segment_len = { 44, 2 }, server_waiting = { 46, 2 },
    },
    Route = {
        len = 24, client_ip = { 0, 16 }, client_port = { 16, 2 }, routed = { 18, 1 }, returns = { 19, 1 },
        placement = { 20, 4 },
    },
    MessageType = {
        Request = 0, Response = 1, Feedback = 2, Ack = 3, Drop = 4, Claimed = 11, ReplyAck = 12, Cancel = 13,
        Probe = 14, Claim = 15,
    },
    Policy = {
        Unrestricted = 0, Fixed = 1,
    },
    Flags = {
        CLONE = 12, COOKIE = 64, HELD = 128, IDEMPOTENT = 1, LONG = 32, MOVED = 128, RESEND = 16,
        RESEND_TAIL = 32, RETRANSMIT = 2, STOPPING = 64, UNSCHEDULED = 16,
    },
    RpcId = {
        SEQUENCE_BITS = 24,
    },
    SackBody = {
        len = 36, base = { 0, 2 }, granted = { 2, 2 }, bitmap = { 4, 32 },
    },
    FeedbackBody = {
        len = 16, epoch = { 0, 4 }, placement_seen = { 4, 4 }, received = { 8, 4 }, concluded = { 12, 4 },
    },
    ClaimBody = {
        len = 18, client_ip = { 0, 16 }, client_port = { 16, 2 },
    },
    Verdict = {
        Uncertain = 0, Renounced = 1, Seen = 2,
    },
    FeedbackV1 = {
        len = 8, rid = { 0, 2 }, client_port = { 2, 2 }, client_ip = { 4, 4 },
    },
    DropReason = {
        Unspecified = 0, Overload = 1, TooLarge = 2, TooOld = 3, Expired = 4, NoServer = 5, Application = 6,
        Uncertain = 7, Unvalidated = 8, Panicked = 9, Stopping = 10, Unanswered = 11, NoKey = 12,
    },
    Rejection = {
        PREFIX_LEN = 5, TEXT_LEN_MAX = 1024,
    },
    Malformed = {
        Truncated = "shorter than its header", Magic = "the first byte is not 0xcc",
        HeaderSize = "header_size is none of 8, 48 and 72, or the route block is where it must not be",
        Type = "an unknown message type, or one that needs the extension", Policy = "an unknown policy",
        Flags = "a reserved flag is set", Order = "the flags, the index and the count contradict each other",
        Version = "an unknown version of the extension",
        Length = "the length of the payload contradicts the header",
    },
    names = {
        Request = "request", Response = "reply", Feedback = "feedback", Ack = "ack", Drop = "drop",
        ReplyAck = "reply-ack", Cancel = "cancel", Probe = "probe", Claim = "claim", Claimed = "claimed",
    },
}
-- Written by hand again.

-- The names of an enumeration, or others for them, by number.
local function by_number(numbers, names)
    local named = {}
    for variant, number in pairs(numbers) do named[number] = names and names[variant] or variant end
    return named
end

-- The bytes of a header's field, where the header begins at `start`.
local function at(tvb, field, start) return tvb((start or 0) + field[1], field[2]) end

local kind = wire.MessageType
local head, bits = wire.BaseHeader, wire.Flags
local request, reply, route, sack, feedback = wire.RequestHeader, wire.ReplyHeader, wire.Route, wire.SackBody, wire.FeedbackBody
local REQUEST, RESPONSE, FEEDBACK, ACK = kind.Request, kind.Response, kind.Feedback, kind.Ack
local DROP, REPLY_ACK, CANCEL, PROBE = kind.Drop, kind.ReplyAck, kind.Cancel, kind.Probe
local CLAIM, CLAIMED, claim = kind.Claim, kind.Claimed, wire.ClaimBody
local BASE_LEN, EXTENDED_LEN, ROUTED_LEN = wire.BASE_LEN, wire.EXTENDED_LEN, wire.ROUTED_LEN
-- A DROP that has the application's code, and the longest text after it.
local DROP_CODE_LEN, DROP_LEN_MAX = wire.Rejection.PREFIX_LEN, wire.Rejection.PREFIX_LEN + wire.Rejection.TEXT_LEN_MAX
-- The longest header and control payload: what a capture must hold of a packet for its fields to be read.
local PREFIX_MAX = EXTENDED_LEN + sack.len

local types = by_number(kind, wire.names)
-- What carries the reply's header; the others carry the request's.
local from_server = { [RESPONSE] = true, [FEEDBACK] = true, [ACK] = true, [DROP] = true, [CLAIMED] = true }
local policies = by_number(wire.Policy, { Unrestricted = "unrestricted", Fixed = "fixed" })
local clone_marks = { [0] = "single", [1] = "original", [2] = "copy", [3] = "copy" }
local drop_reasons = by_number(wire.DropReason)
local verdicts = by_number(wire.Verdict)

-- In the order of the header; the generated ones last.
local f = {
    magic = ProtoField.uint8("r2p2.magic", "Magic", base.HEX),
    header_size = ProtoField.uint8("r2p2.header_size", "Header size", base.DEC),
    type = ProtoField.uint8("r2p2.type", "Type", base.DEC, types, 0xf0),
    policy = ProtoField.uint8("r2p2.policy", "Policy", base.DEC, policies, 0x0f),
    flags = ProtoField.uint8("r2p2.flags", "Flags", base.HEX),
    first = ProtoField.bool("r2p2.flags.first", "First packet", 8, nil, wire.position.FIRST),
    last = ProtoField.bool("r2p2.flags.last", "Last packet", 8, nil, wire.position.LAST),
    flags_reserved = ProtoField.uint8("r2p2.flags.reserved", "Reserved", base.HEX, nil, 0x3f),
    rid = ProtoField.uint16("r2p2.rid", "Request id", base.DEC),
    p_order = ProtoField.uint16("r2p2.p_order", "Packet order", base.DEC),
    undefined = ProtoField.bytes("r2p2.undefined", "Undefined in a version 1 feedback"),

    ext = ProtoField.none("r2p2.ext", "Extension"),
    rpc_id = ProtoField.uint64("r2p2.ext.rpc_id", "RPC id", base.HEX),
    session = ProtoField.uint64("r2p2.ext.session", "Session", base.HEX),
    sequence = ProtoField.uint32("r2p2.ext.sequence", "Sequence", base.DEC),
    message_len = ProtoField.uint32("r2p2.ext.message_len", "Message length", base.DEC),
    ext_flags = ProtoField.uint8("r2p2.ext.flags", "Flags", base.HEX),
    idempotent = ProtoField.bool("r2p2.ext.flags.idempotent", "Idempotent", 8, nil, bits.IDEMPOTENT),
    retransmit = ProtoField.bool("r2p2.ext.flags.retransmit", "Retransmit", 8, nil, bits.RETRANSMIT),
    clone = ProtoField.uint8("r2p2.ext.flags.clone", "Clone", base.DEC, clone_marks, 0x0c),
    resend = ProtoField.bool("r2p2.ext.flags.resend", "Resend", 8, nil, bits.RESEND),
    unscheduled = ProtoField.bool("r2p2.ext.flags.unscheduled", "Unscheduled", 8, nil, bits.UNSCHEDULED),
    long = ProtoField.bool("r2p2.ext.flags.long", "Long", 8, nil, bits.LONG),
    resend_tail = ProtoField.bool("r2p2.ext.flags.resend_tail", "Resend tail", 8, nil, bits.RESEND_TAIL),
    stopping = ProtoField.bool("r2p2.ext.flags.stopping", "Stopping", 8, nil, bits.STOPPING),
    moved = ProtoField.bool("r2p2.ext.flags.moved", "Moved", 8, nil, bits.MOVED),
    cookie = ProtoField.bool("r2p2.ext.flags.cookie", "Cookie", 8, nil, bits.COOKIE),
    held = ProtoField.bool("r2p2.ext.flags.held", "Held", 8, nil, bits.HELD),
    version = ProtoField.uint8("r2p2.ext.version", "Extension version", base.DEC),
    server_load = ProtoField.uint16("r2p2.ext.server_load", "Server load", base.DEC),
    server_waiting = ProtoField.uint16("r2p2.ext.server_waiting", "Server waiting", base.DEC),
    retry_after_ns = ProtoField.uint32("r2p2.ext.retry_after_ns", "Retry after (ns)", base.DEC),
    held_ns = ProtoField.uint32("r2p2.ext.held_ns", "Held for (ns)", base.DEC),
    servers = ProtoField.uint32("r2p2.ext.servers", "Servers", base.DEC),
    server_id = ProtoField.uint32("r2p2.ext.server_id", "Server id", base.DEC),
    client_clock_us = ProtoField.uint32("r2p2.ext.client_clock_us", "Client clock (us)", base.DEC),
    deadline_us = ProtoField.uint32("r2p2.ext.deadline_us", "Deadline (us)", base.DEC),
    clock_echo_us = ProtoField.uint32("r2p2.ext.clock_echo_us", "Clock echo (us)", base.DEC),
    token = ProtoField.uint64("r2p2.ext.token", "Address token", base.HEX),
    floor = ProtoField.uint32("r2p2.ext.floor", "Floor", base.DEC),
    segment_len = ProtoField.uint16("r2p2.ext.segment_len", "Segment length", base.DEC),
    age_ms = ProtoField.uint16("r2p2.ext.age_ms", "Age (ms)", base.DEC),

    route = ProtoField.none("r2p2.route", "Route"),
    client_ip = ProtoField.ipv6("r2p2.route.client_ip", "Client address"),
    client_port = ProtoField.uint16("r2p2.route.client_port", "Client port", base.DEC),
    routed = ProtoField.uint8("r2p2.route.routed", "Routed", base.DEC),
    returns = ProtoField.uint8("r2p2.route.returns", "Reply returns", base.DEC),
    placement = ProtoField.uint32("r2p2.route.placement", "Placement", base.DEC),

    sack = ProtoField.none("r2p2.sack", "Acknowledgment and window"),
    sack_base = ProtoField.uint16("r2p2.sack.base", "Base", base.DEC),
    sack_granted = ProtoField.uint16("r2p2.sack.granted", "Granted", base.DEC),
    sack_bitmap = ProtoField.bytes("r2p2.sack.bitmap", "Bitmap"),
    sack_more = ProtoField.uint16("r2p2.sack.more", "Arrived above the base", base.DEC),

    feedback = ProtoField.none("r2p2.feedback", "Feedback"),
    feedback_epoch = ProtoField.uint32("r2p2.feedback.epoch", "Epoch", base.HEX),
    feedback_placement_seen = ProtoField.uint32("r2p2.feedback.placement_seen", "Placement seen", base.DEC),
    feedback_received = ProtoField.uint32("r2p2.feedback.received", "Received", base.DEC),
    feedback_concluded = ProtoField.uint32("r2p2.feedback.concluded", "Concluded", base.DEC),

    feedback_v1 = ProtoField.none("r2p2.feedback_v1", "Feedback of version 1"),
    feedback_v1_rid = ProtoField.uint16("r2p2.feedback_v1.rid", "Request id", base.DEC),
    feedback_v1_client_port = ProtoField.uint16("r2p2.feedback_v1.client_port", "Client port", base.DEC),
    feedback_v1_client_ip = ProtoField.ipv4("r2p2.feedback_v1.client_ip", "Client address"),

    drop_reason = ProtoField.uint8("r2p2.drop.reason", "Reason", base.DEC, drop_reasons),
    drop_code = ProtoField.uint32("r2p2.drop.code", "Code", base.DEC),
    drop_text = ProtoField.string("r2p2.drop.text", "Text"),
    probe_placement = ProtoField.uint32("r2p2.probe.placement", "Placement", base.DEC),
    claim_client_ip = ProtoField.ipv6("r2p2.claim.client_ip", "Client address"),
    claim_client_port = ProtoField.uint16("r2p2.claim.client_port", "Client port", base.DEC),
    claimed = ProtoField.uint8("r2p2.claimed", "Verdict", base.DEC, verdicts),
    payload = ProtoField.bytes("r2p2.payload", "Payload"),

    index = ProtoField.uint16("r2p2.index", "Packet index", base.DEC),
    count = ProtoField.uint16("r2p2.count", "Packet count", base.DEC),
    payload_len = ProtoField.uint32("r2p2.payload_len", "Payload length", base.DEC),
    reason = ProtoField.string("r2p2.malformed", "Malformed"),
    summary = ProtoField.string("r2p2.summary", "Summary"),
}

local field_order = {
    "magic", "header_size", "type", "policy", "flags", "first", "last", "flags_reserved", "rid", "p_order", "undefined",
    "ext", "rpc_id", "session", "sequence", "message_len", "ext_flags", "idempotent", "retransmit", "clone", "resend",
    "long", "resend_tail", "stopping", "moved", "held", "version", "server_load", "server_id", "client_clock_us", "deadline_us", "clock_echo_us", "token", "floor", "segment_len", "age_ms", "server_waiting", "retry_after_ns", "held_ns", "servers",
    "route", "client_ip", "client_port", "routed", "returns", "placement",
    "sack", "sack_base", "sack_granted", "sack_bitmap", "sack_more",
    "feedback", "feedback_epoch", "feedback_placement_seen", "feedback_received", "feedback_concluded",
    "feedback_v1", "feedback_v1_rid", "feedback_v1_client_port", "feedback_v1_client_ip",
    "drop_reason", "drop_code", "drop_text", "probe_placement", "claim_client_ip", "claim_client_port", "claimed", "payload", "index", "count", "payload_len", "reason", "summary",
}
local fields = {}
for position, name in ipairs(field_order) do fields[position] = f[name] end
r2p2.fields = fields

local malformed_expert = ProtoExpert.new("r2p2.malformed.expert", "Malformed R2P2", expert.group.MALFORMED, expert.severity.ERROR)
local retransmit_expert = ProtoExpert.new("r2p2.retransmit.expert", "Retransmission", expert.group.SEQUENCE, expert.severity.NOTE)
local drop_expert = ProtoExpert.new("r2p2.drop.expert", "Refused", expert.group.RESPONSE_CODE, expert.severity.WARN)
r2p2.experts = { malformed_expert, retransmit_expert, drop_expert }

r2p2.prefs.ports = Pref.range("UDP ports", "8000,9000", "Datagrams to or from these ports are R2P2", 65535)

local function flag(byte, mask) return math.floor(byte / mask) % 2 == 1 end

local function type_of(tvb) return at(tvb, head.type_policy):bitfield(0, 4) end

local function is_data(packet) return packet.type == REQUEST or packet.type == RESPONSE end

-- Index, count (0 where the packet does not declare it) and whether it is the last; nothing where they are incoherent.
local function order(tvb)
    local flags, p_order = at(tvb, head.flags):uint(), at(tvb, head.p_order):uint()
    local is_first, is_last = flag(flags, wire.position.FIRST), flag(flags, wire.position.LAST)
    if p_order == 0 or (is_first and is_last ~= (p_order == 1)) then return nil end
    if is_first then return 0, p_order, is_last end
    return p_order, 0, is_last
end

-- Packets of a message; nothing where 16 bits do not hold them.
local function packet_count(message_len, segment_len)
    if message_len == 0 then return 1 end
    if segment_len == 0 then return nil end
    local count = math.ceil(message_len / segment_len)
    if count < 65535 then return count end
    return nil
end

local function control_len(packet)
    if packet.type == ACK then return packet.is_extended and sack.len or 3 end
    if packet.type == REPLY_ACK then return sack.len end
    if packet.type == FEEDBACK then return packet.is_extended and feedback.len or wire.FeedbackV1.len end
    if packet.type == PROBE then return 4 end
    if packet.type == CANCEL then return 0 end
    if packet.type == CLAIM then return claim.len end
    if packet.type == CLAIMED then return 1 end
    if not packet.is_extended or packet.payload_len >= DROP_CODE_LEN and packet.payload_len <= DROP_LEN_MAX then return nil end
    return 1
end

-- Why a control packet is malformed, or nothing.
local function judge_control(packet)
    if packet.count ~= 1 or not packet.is_last then return "Order" end
    local expected = control_len(packet)
    if expected and packet.payload_len ~= expected then return "Length" end
    return nil
end

-- Why an extended data packet is malformed, or nothing; learns its count.
local function judge_data(tvb, packet)
    local message_len, segment_len = at(tvb, request.message_len):uint(), at(tvb, request.segment_len):uint()
    local declared_count = packet.count
    local count = packet_count(message_len, segment_len)
    if not count then return "Length" end
    if packet.index >= count or packet.is_last ~= (packet.index + 1 == count) then return "Order" end
    local rest = message_len - packet.index * segment_len
    if packet.payload_len ~= math.max(0, math.min(rest, segment_len)) then return "Length" end
    if declared_count ~= 0 and declared_count ~= count then return "Order" end
    packet.count = count
    return nil
end

local function judge_extended(tvb, packet, len)
    if len < EXTENDED_LEN then return "Truncated" end
    if at(tvb, request.version):uint() ~= wire.EXTENSION_VERSION then return "Version" end
    if len < packet.header_len then return "Truncated" end
    packet.index, packet.count, packet.is_last = order(tvb)
    if not packet.index then return "Order" end
    local may_have_route = packet.type == REQUEST and packet.index == 0
        or packet.type == RESPONSE and packet.index == 0 and packet.is_last
    if packet.header_len == ROUTED_LEN and not may_have_route then return "HeaderSize" end
    if is_data(packet) then return judge_data(tvb, packet) end
    return judge_control(packet)
end

local function judge_v1(tvb, packet)
    if packet.type >= REPLY_ACK then return "Type" end
    packet.index, packet.count, packet.is_last = order(tvb)
    if not packet.index or packet.count > wire.V1_PACKETS_MAX or packet.index >= wire.V1_PACKETS_MAX then return "Order" end
    if not is_data(packet) then return judge_control(packet) end
    return nil
end

-- What a datagram is: the packet, or nothing and why.
local function parse(tvb)
    local len = tvb:reported_len()
    if len < BASE_LEN then return nil, "Truncated" end
    if at(tvb, head.magic):uint() ~= wire.MAGIC then return nil, "Magic" end
    local packet = { type = type_of(tvb), policy = at(tvb, head.type_policy):bitfield(4, 4), header_len = BASE_LEN }
    if not types[packet.type] then return nil, "Type" end
    if packet.type == FEEDBACK and len == BASE_LEN + wire.FeedbackV1.len then
        packet.is_v1_feedback, packet.index, packet.count, packet.is_last = true, 0, 1, true
        packet.payload_len = wire.FeedbackV1.len
        return packet
    end
    if not policies[packet.policy] then return nil, "Policy" end
    if at(tvb, head.flags):bitfield(2, 6) ~= 0 then return nil, "Flags" end
    packet.header_len = at(tvb, head.header_size):uint()
    packet.payload_len = len - packet.header_len
    local reason
    if packet.header_len == BASE_LEN then
        reason = judge_v1(tvb, packet)
    elseif packet.header_len == EXTENDED_LEN or packet.header_len == ROUTED_LEN then
        packet.is_extended = true
        reason = judge_extended(tvb, packet, len)
    else
        reason = "HeaderSize"
    end
    if reason then return nil, reason end
    return packet
end

-- Adds fields of a header, which are called as the header's, behind a prefix.
local function add_all(tree, tvb, header, names, start, prefix)
    for _, name in ipairs(names) do tree:add(f[(prefix or "") .. name], at(tvb, header[name], start)) end
end

local function add_type(tvb, tree, names)
    for _, name in ipairs(names) do tree:add(f[name], at(tvb, head.type_policy)) end
end

local function add_base(tvb, tree)
    add_all(tree, tvb, head, { "magic", "header_size" })
    add_type(tvb, tree, { "type", "policy" })
    local flags = tree:add(f.flags, at(tvb, head.flags))
    for _, one in ipairs({ f.first, f.last, f.flags_reserved }) do flags:add(one, at(tvb, head.flags)) end
    add_all(tree, tvb, head, { "rid", "p_order" })
end

local function add_extension(tvb, tree)
    local ext = tree:add(f.ext, tvb(BASE_LEN, EXTENDED_LEN - BASE_LEN))
    local rpc_id = at(tvb, request.rpc_id)
    local session_len = rpc_id:len() - wire.RpcId.SEQUENCE_BITS / 8
    local id = ext:add(f.rpc_id, rpc_id)
    id:add(f.session, rpc_id(0, session_len), rpc_id(0, session_len):uint64())
    id:add(f.sequence, rpc_id(session_len))
    ext:add(f.message_len, at(tvb, request.message_len))
    local range = at(tvb, request.flags)
    local flags = ext:add(f.ext_flags, range)
    for _, one in ipairs({ f.idempotent, f.retransmit, f.clone, f.resend }) do flags:add(one, range) end
    local is_long = flag(range:uint(), bits.LONG) and (type_of(tvb) == REQUEST or type_of(tvb) == RESPONSE)
    flags:add(is_long and f.long or f.resend_tail, range)
    if flag(range:uint(), bits.STOPPING) then
        flags:add(type_of(tvb) == FEEDBACK and f.stopping or f.cookie, range)
    end
    local is_ack = type_of(tvb) == ACK
    if flag(range:uint(), bits.MOVED) then flags:add(is_ack and f.held or f.moved, range) end
    if from_server[type_of(tvb)] then
        add_all(ext, tvb, reply, { "version", "server_load", "server_id", "clock_echo_us", "token", "segment_len", "server_waiting" })
        local is_held = is_ack and flag(range:uint(), bits.HELD)
        local detail = type_of(tvb) == FEEDBACK and f.servers or is_held and f.held_ns or f.retry_after_ns
        ext:add(detail, at(tvb, reply.detail))
    else
        add_all(ext, tvb, request, { "version", "client_clock_us", "deadline_us", "token", "floor", "segment_len", "age_ms" })
    end
end

local function add_route(tvb, tree)
    local shown = tree:add(f.route, tvb(EXTENDED_LEN, route.len))
    add_all(shown, tvb, route, { "client_ip", "client_port", "routed", "returns" }, EXTENDED_LEN)
    shown:add(f.placement, at(tvb, route.placement, EXTENDED_LEN))
end

local function add_v1_feedback(tvb, tree)
    tree:add(f.magic, at(tvb, head.magic))
    tree:add(f.undefined, at(tvb, head.header_size))
    add_type(tvb, tree, { "type" })
    tree:add(f.undefined, tvb(head.flags[1], BASE_LEN - head.flags[1]))
    local shown = tree:add(f.feedback_v1, tvb(BASE_LEN, wire.FeedbackV1.len))
    add_all(shown, tvb, wire.FeedbackV1, { "rid", "client_port", "client_ip" }, BASE_LEN, "feedback_v1_")
end

-- Arrived packets above the base: the set bits of the bitmap.
local function count_set(range)
    local set = 0
    for position = 0, range:len() - 1 do
        for bit = 0, 7 do set = set + range(position, 1):bitfield(bit, 1) end
    end
    return set
end

-- The payload of a coherent packet.
local function add_payload(tvb, tree, packet)
    local start = packet.header_len
    if packet.is_extended and (packet.type == ACK or packet.type == REPLY_ACK) then
        local shown, bitmap = tree:add(f.sack, tvb(start, sack.len)), at(tvb, sack.bitmap, start)
        add_all(shown, tvb, sack, { "base", "granted", "bitmap" }, start, "sack_")
        shown:add(f.sack_more, bitmap, count_set(bitmap)):set_generated()
    elseif packet.is_extended and packet.type == FEEDBACK then
        local shown = tree:add(f.feedback, tvb(start, feedback.len))
        add_all(shown, tvb, feedback, { "epoch", "placement_seen", "received", "concluded" }, start, "feedback_")
    elseif packet.is_extended and packet.type == DROP then
        tree:add(f.drop_reason, tvb(start, 1))
        if packet.payload_len >= DROP_CODE_LEN then tree:add(f.drop_code, tvb(start + 1, 4)) end
        if packet.payload_len > DROP_CODE_LEN and tvb:len() > start + DROP_CODE_LEN then
            tree:add(f.drop_text, tvb(start + DROP_CODE_LEN))
        end
    elseif packet.type == PROBE then
        tree:add(f.probe_placement, tvb(start, 4))
    elseif packet.type == CLAIM then
        add_all(tree, tvb, claim, { "client_ip", "client_port" }, start, "claim_")
    elseif packet.type == CLAIMED then
        tree:add(f.claimed, tvb(start, 1))
    elseif packet.payload_len > 0 and tvb:len() > start then
        tree:add(f.payload, tvb(start))
    end
end

local function flags_text(flags, kind)
    local text, last = "", kind == ACK and "HELD" or "MOVED"
    local fourth = kind == REQUEST and "UNSCHEDULED" or "RESEND"
    local fifth = (kind == REQUEST or kind == RESPONSE) and "LONG" or "RESEND_TAIL"
    local sixth = kind == FEEDBACK and "STOPPING" or "COOKIE"
    for _, name in ipairs({ "IDEMPOTENT", "RETRANSMIT", fourth, fifth, sixth, last }) do
        if flag(flags, bits[name]) then text = text .. " " .. name:lower():gsub("_", "-") end
    end
    local clone = math.floor(flags / 4) % 4
    if clone == 1 then text = text .. " clone-original" end
    if clone >= 2 then text = text .. " clone-copy" end
    return text
end

local function body_text(tvb, packet)
    local start = packet.header_len
    if packet.type == ACK or packet.type == REPLY_ACK then
        return string.format(" below %d and %d more, granted %d", at(tvb, sack.base, start):uint(),
            count_set(at(tvb, sack.bitmap, start)), at(tvb, sack.granted, start):uint())
    elseif packet.type == FEEDBACK then
        local function of(field) return at(tvb, field, start):uint() end
        return string.format(" epoch %08x seen %d received %d concluded %d", of(feedback.epoch), of(feedback.placement_seen),
            of(feedback.received), of(feedback.concluded))
    elseif packet.type == CLAIMED then
        return " " .. (verdicts[tvb(start, 1):uint()] or "Uncertain")
    elseif packet.type == DROP then
        local text = " " .. (drop_reasons[tvb(start, 1):uint()] or "Unspecified")
        if packet.payload_len < DROP_CODE_LEN then return text end
        return text .. string.format(" code %d", tvb(start + 1, 4):uint())
    end
    return ""
end

local function order_text(packet)
    local text
    if packet.count == 0 then
        text = string.format(" %d%s", packet.index, packet.is_last and " last" or "")
    else
        text = string.format(" %d/%d", packet.index, packet.count)
    end
    if packet.policy == 1 and packet.type == REQUEST then text = text .. " fixed" end
    return text
end

local function extension_text(tvb, packet)
    local text = is_data(packet) and string.format(" of %d B", at(tvb, request.message_len):uint()) or ""
    text = text .. flags_text(at(tvb, request.flags):uint(), packet.type)
    local server_load, server_id = at(tvb, reply.server_load):uint(), at(tvb, reply.server_id):uint()
    local deadline_us = at(tvb, request.deadline_us):uint()
    if not from_server[packet.type] then
        if deadline_us ~= 0 then text = text .. string.format(" deadline %dus", deadline_us) end
    elseif server_id ~= 0 or server_load ~= 0 then
        text = text .. string.format(" server %d load %d", server_id, server_load)
    end
    local server_waiting = at(tvb, reply.server_waiting):uint()
    if from_server[packet.type] and server_waiting ~= 0 then text = text .. string.format(" waiting %d", server_waiting) end
    local detail = at(tvb, reply.detail):uint()
    if from_server[packet.type] and detail ~= 0 then
        local form = packet.type == FEEDBACK and " servers %d" or packet.type == ACK and " for %dns" or " retry-after %dns"
        text = text .. string.format(form, detail)
    end
    if packet.header_len ~= ROUTED_LEN then return text end
    if from_server[packet.type] then return text .. " to-router" end
    if at(tvb, route.routed, EXTENDED_LEN):uint() ~= 0 then
        text = text .. string.format(" placement %d", at(tvb, route.placement, EXTENDED_LEN):uint())
        if at(tvb, route.returns, EXTENDED_LEN):uint() ~= 0 then text = text .. " returns" end
    end
    return text
end

local function summary(tvb, packet)
    local text = "R2P2 " .. types[packet.type]
    if packet.is_extended then
        text = text .. " id " .. at(tvb, request.rpc_id):bytes():tohex(true)
    elseif not packet.is_v1_feedback then
        text = text .. string.format(" rid %d", at(tvb, head.rid):uint())
    end
    if is_data(packet) then text = text .. order_text(packet) end
    if packet.is_extended then text = text .. extension_text(tvb, packet) .. body_text(tvb, packet) end
    return text .. string.format(", length %d", packet.payload_len)
end

local function show_malformed(tvb, tree, reason)
    local header_len = tvb:len() >= BASE_LEN and at(tvb, head.header_size):uint() or 0
    if tvb:len() >= BASE_LEN then add_base(tvb, tree) end
    if tvb:len() >= EXTENDED_LEN and (header_len == EXTENDED_LEN or header_len == ROUTED_LEN) then add_extension(tvb, tree) end
    if tvb:len() >= ROUTED_LEN and header_len == ROUTED_LEN then add_route(tvb, tree) end
    tree:add(f.reason, tvb(), reason):set_generated()
    tree:add_proto_expert_info(malformed_expert, "Malformed R2P2: " .. wire.Malformed[reason])
    return "not R2P2: " .. reason
end

local function show_packet(tvb, tree, packet)
    if packet.is_v1_feedback then
        add_v1_feedback(tvb, tree)
    else
        add_base(tvb, tree)
        if packet.is_extended then add_extension(tvb, tree) end
        if packet.header_len == ROUTED_LEN then add_route(tvb, tree) end
        add_payload(tvb, tree, packet)
    end
    tree:add(f.index, packet.index):set_generated()
    if packet.count ~= 0 then tree:add(f.count, packet.count):set_generated() end
    tree:add(f.payload_len, packet.payload_len):set_generated()
    if packet.is_extended and flag(at(tvb, request.flags):uint(), bits.RETRANSMIT) then tree:add_proto_expert_info(retransmit_expert) end
    if packet.type == DROP then tree:add_proto_expert_info(drop_expert) end
    return summary(tvb, packet)
end

-- Whether the capture left out a part of the header.
local function is_cut(tvb) return tvb:len() < math.min(tvb:reported_len(), PREFIX_MAX) end

function r2p2.dissector(tvb, pinfo, root)
    pinfo.cols.protocol = "R2P2"
    local tree = root:add(r2p2, tvb())
    local text
    if is_cut(tvb) then
        text = string.format("R2P2 cut by the capture to %d of %d B", tvb:len(), tvb:reported_len())
    else
        local packet, reason = parse(tvb)
        text = packet and show_packet(tvb, tree, packet) or show_malformed(tvb, tree, reason)
    end
    tree:add(f.summary, tvb(), text):set_generated()
    pinfo.cols.info = text
    return tvb:len()
end

-- On other ports: a coherent packet, but for a version 1 FEEDBACK, of which only the magic and the type are certain.
local function heuristic(tvb, pinfo, root)
    if tvb:len() < BASE_LEN or is_cut(tvb) or at(tvb, head.magic):uint() ~= wire.MAGIC then return false end
    local packet = parse(tvb)
    if not packet or packet.is_v1_feedback then return false end
    r2p2.dissector(tvb, pinfo, root)
    return true
end

local udp_ports = DissectorTable.get("udp.port")
local registered = r2p2.prefs.ports
udp_ports:add(registered, r2p2)

function r2p2.prefs_changed()
    if registered == r2p2.prefs.ports then return end
    udp_ports:remove(registered, r2p2)
    registered = r2p2.prefs.ports
    udp_ports:add(registered, r2p2)
end

r2p2:register_heuristic("udp", heuristic)
