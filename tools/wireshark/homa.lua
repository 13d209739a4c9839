-- Homa as docs/protocol/homa.md lays it down: the packets of the Linux module and tailcut's flags, as IP protocol 146, inside UDP
-- and in the disguise of TCP.
--
-- wireshark -X lua_script:tools/wireshark/homa.lua capture.pcap, or copy the file to Wireshark's personal Lua plugins.
--
-- `parse` makes the decisions of Packet::parse in crates/wire in the same order and gives the same reasons, and `summary`
-- the line of its Display; tools/wireshark/check.sh holds both to it. Messages are not reassembled.

local homa = Proto("homa", "Homa messages")

-- Written by `cargo xtask dissectors` from crates/wire, up to the next mark.
local wire = {
    IP_PROTOCOL = 146, UDP_PORT = 50146, COMMON_LEN = 28, DATA_LEN = 56, MESSAGE_LEN_MAX = 1000000, LEVELS = 8,
    ACKS_MAX = 5, CLIENT_PORT_MIN = 32768, RESEND_ALL = 4294967295, OFFSET_IN_SEQUENCE = 4294967295,
    TAG_MARK = 4, FLAGS = 6, URGENT = 47485, HIJACKED_IP_PROTOCOL = 6,
    PacketType = {
        Data = 16, Grant = 17, Resend = 18, RpcUnknown = 19, Busy = 20, Cutoffs = 21, Freeze = 22, NeedAck = 23,
        Ack = 24, Cookie = 31,
    },
    CommonHeader = {
        len = 28, sport = { 0, 2 }, dport = { 2, 2 }, sequence = { 4, 4 }, reserved = { 8, 3 },
        packet_type = { 11, 1 }, doff = { 12, 1 }, flags = { 13, 1 }, window = { 14, 2 }, checksum = { 16, 2 },
        urgent = { 18, 2 }, sender_id = { 20, 8 },
    },
    Ack = {
        len = 10, client_id = { 0, 8 }, server_port = { 8, 2 },
    },
    DataHeader = {
        len = 56, common = { 0, 28 }, message_length = { 28, 4 }, incoming = { 32, 4 }, ack = { 36, 10 },
        cutoff_version = { 46, 2 }, retransmit = { 48, 1 }, flags = { 49, 1 }, time_left = { 50, 2 },
        seg_offset = { 52, 4 },
    },
    DataFlags = {
        EMPTY = 16, IDEMPOTENT = 8, INCAST = 1, KNOWN = 128, LONG = 32, PART = 2, REFUSED = 4,
    },
    TimeLeft = {
        MANTISSA_MAX = 4095,
    },
    GrantPacket = {
        len = 33, common = { 0, 28 }, offset = { 28, 4 }, priority = { 32, 1 },
    },
    ResendPacket = {
        len = 37, common = { 0, 28 }, offset = { 28, 4 }, length = { 32, 4 }, priority = { 36, 1 },
    },
    CutoffsPacket = {
        len = 62, common = { 0, 28 }, cutoffs = { 28, 32 }, version = { 60, 2 },
    },
    AckPacket = {
        len = 80, common = { 0, 28 }, num_acks = { 28, 2 }, acks = { 30, 50 },
    },
    CookiePacket = {
        len = 37, common = { 0, 28 }, cookie = { 28, 8 }, is_demand = { 36, 1 },
    },
    PartHeader = {
        len = 20, key = { 0, 8 }, total_len = { 8, 4 }, offset = { 12, 4 }, kind = { 16, 1 },
        reserved = { 17, 3 },
    },
    PartKind = {
        Request = 0, Fetch = 1, Reply = 2,
    },
    Malformed = {
        Truncated = "shorter than its header", Type = "an unknown type",
        Length = "a message of no bytes, or data outside of it",
        Value = "an id, a count of acknowledgements, a priority or a cookie that cannot be",
    },
    names = {
        Data = "data", Grant = "grant", Resend = "resend", RpcUnknown = "unknown", Busy = "busy",
        Cutoffs = "cutoffs", Freeze = "freeze", NeedAck = "need-ack", Ack = "ack", Cookie = "cookie",
    },
    DropReason = {
        Unspecified = 0, Overload = 1, TooLarge = 2, TooOld = 3, Expired = 4, NoServer = 5, Application = 6,
        Uncertain = 7, Unvalidated = 8, Panicked = 9, Stopping = 10, Unanswered = 11, NoKey = 12,
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

local common, data, part = wire.CommonHeader, wire.DataHeader, wire.PartHeader
local grant, resend, cutoffs, acks = wire.GrantPacket, wire.ResendPacket, wire.CutoffsPacket, wire.AckPacket
local cookie = wire.CookiePacket
local COMMON_LEN, DATA_LEN, PART_LEN = wire.COMMON_LEN, wire.DATA_LEN, part.len
-- The variant without grants has no priority in its RESEND.
local RESEND_STRIPPED_LEN = resend.priority[1]
-- The longest header: what a capture must hold of a packet for its fields to be read.
local PREFIX_MAX = acks.len
local LEVELS, ACKS_MAX = wire.LEVELS, wire.ACKS_MAX

local kinds = wire.PacketType
local DATA, GRANT, RESEND, CUTOFFS, ACK = kinds.Data, kinds.Grant, kinds.Resend, kinds.Cutoffs, kinds.Ack
local COOKIE = kinds.Cookie
local bits = wire.DataFlags

local types = by_number(kinds, wire.names)
local lens = {
    [DATA] = DATA_LEN, [GRANT] = grant.len, [RESEND] = resend.len, [CUTOFFS] = cutoffs.len, [ACK] = acks.len, [COOKIE] = cookie.len,
}
local part_kinds = by_number(wire.PartKind, { Request = "part of a request", Fetch = "fetch", Reply = "part of a reply" })
local drop_reasons = by_number(wire.DropReason)
-- In the order of the header; the generated ones last.
local f = {
    sport = ProtoField.uint16("homa.sport", "Source port", base.DEC),
    dport = ProtoField.uint16("homa.dport", "Destination port", base.DEC),
    sequence = ProtoField.uint32("homa.sequence", "Sequence", base.DEC),
    reserved = ProtoField.bytes("homa.reserved", "Reserved"),
    packet_type = ProtoField.uint8("homa.type", "Type", base.HEX, types),
    doff = ProtoField.uint8("homa.doff", "Data offset", base.DEC, nil, 0xf0),
    flags = ProtoField.uint8("homa.flags", "Flags", base.HEX),
    window = ProtoField.uint16("homa.window", "Window", base.DEC),
    checksum = ProtoField.uint16("homa.checksum", "Checksum (not verified)", base.HEX),
    urgent = ProtoField.uint16("homa.urgent", "Urgent pointer", base.HEX),
    sender_id = ProtoField.uint64("homa.sender_id", "Sender's id", base.HEX),

    message_length = ProtoField.uint32("homa.data.message_length", "Message length", base.DEC),
    incoming = ProtoField.uint32("homa.data.incoming", "Incoming", base.DEC),
    ack_client_id = ProtoField.uint64("homa.data.ack.client_id", "Acknowledged id", base.HEX),
    ack_server_port = ProtoField.uint16("homa.data.ack.server_port", "Acknowledged server port", base.DEC),
    cutoff_version = ProtoField.uint16("homa.data.cutoff_version", "Cutoff version", base.DEC),
    retransmit = ProtoField.uint8("homa.data.retransmit", "Retransmit", base.DEC),
    data_flags = ProtoField.uint8("homa.data.flags", "Flags", base.HEX),
    known = ProtoField.bool("homa.data.flags.known", "Knows flags", 8, nil, bits.KNOWN),
    incast = ProtoField.bool("homa.data.flags.incast", "Incast", 8, nil, bits.INCAST),
    part = ProtoField.bool("homa.data.flags.part", "Part", 8, nil, bits.PART),
    refused = ProtoField.bool("homa.data.flags.refused", "Refused", 8, nil, bits.REFUSED),
    idempotent = ProtoField.bool("homa.data.flags.idempotent", "Idempotent", 8, nil, bits.IDEMPOTENT),
    long = ProtoField.bool("homa.data.flags.long", "Long", 8, nil, bits.LONG),
    empty = ProtoField.bool("homa.data.flags.empty", "Empty", 8, nil, bits.EMPTY),
    time_left = ProtoField.uint16("homa.data.time_left", "Time left", base.HEX),
    seg_offset = ProtoField.uint32("homa.data.seg_offset", "Segment offset", base.HEX),

    part_key = ProtoField.uint64("homa.part.key", "Key", base.HEX),
    part_total_len = ProtoField.uint32("homa.part.total_len", "Total length", base.DEC),
    part_offset = ProtoField.uint32("homa.part.offset", "Part offset", base.DEC),
    part_kind = ProtoField.uint8("homa.part.kind", "Part kind", base.DEC, part_kinds),
    part_reserved = ProtoField.bytes("homa.part.reserved", "Reserved"),

    grant_offset = ProtoField.uint32("homa.grant.offset", "Granted below", base.DEC),
    grant_priority = ProtoField.uint8("homa.grant.priority", "Priority", base.DEC),
    resend_offset = ProtoField.uint32("homa.resend.offset", "Missing from", base.DEC),
    resend_length = ProtoField.uint32("homa.resend.length", "Missing bytes", base.DEC),
    resend_priority = ProtoField.uint8("homa.resend.priority", "Priority", base.DEC),
    cutoff = ProtoField.uint32("homa.cutoffs.cutoff", "Cutoff", base.DEC),
    cutoffs_version = ProtoField.uint16("homa.cutoffs.version", "Version", base.DEC),
    num_acks = ProtoField.uint16("homa.ack.num_acks", "Acknowledgements", base.DEC),
    client_id = ProtoField.uint64("homa.ack.client_id", "Acknowledged id", base.HEX),
    server_port = ProtoField.uint16("homa.ack.server_port", "Server port", base.DEC),
    cookie_cookie = ProtoField.uint64("homa.cookie.cookie", "Cookie", base.HEX),
    cookie_is_demand = ProtoField.uint8("homa.cookie.is_demand", "Demanded", base.DEC),

    reason = ProtoField.uint8("homa.refused.reason", "Reason", base.DEC, drop_reasons),
    payload = ProtoField.bytes("homa.payload", "Payload"),
    trailer = ProtoField.bytes("homa.trailer", "Ignored bytes"),

    rpc_id = ProtoField.uint64("homa.rpc_id", "RPC, as its client numbers it", base.HEX),
    from_client = ProtoField.bool("homa.from_client", "From the client"),
    hijacked = ProtoField.bool("homa.hijacked", "In the disguise of TCP"),
    stripped = ProtoField.bool("homa.stripped", "From the variant without grants"),
    offset = ProtoField.uint32("homa.data.offset", "Offset", base.DEC),
    tag = ProtoField.uint64("homa.data.tag", "Tag", base.HEX),
    age_ms = ProtoField.uint64("homa.data.age_ms", "Age at most (ms)", base.DEC),
    deadline_us = ProtoField.uint64("homa.data.deadline_us", "Deadline (us)", base.DEC),
    payload_len = ProtoField.uint32("homa.payload_len", "Payload length", base.DEC),
    malformed = ProtoField.string("homa.malformed", "Malformed"),
    summary = ProtoField.string("homa.summary", "Summary"),
}

local field_order = {
    "sport", "dport", "sequence", "reserved", "packet_type", "doff", "flags", "window", "checksum", "urgent", "sender_id",
    "message_length", "incoming", "ack_client_id", "ack_server_port", "cutoff_version", "retransmit",
    "data_flags", "known", "incast", "part", "refused", "idempotent", "empty", "long", "time_left", "seg_offset",
    "part_key", "part_total_len", "part_offset", "part_kind", "part_reserved",
    "grant_offset", "grant_priority", "resend_offset", "resend_length", "resend_priority", "cutoff", "cutoffs_version",
    "num_acks", "client_id", "server_port", "cookie_cookie", "cookie_is_demand", "reason", "payload", "trailer",
    "rpc_id", "from_client", "hijacked", "stripped", "offset", "tag", "age_ms", "deadline_us", "payload_len", "malformed", "summary",
}
local fields = {}
for position, name in ipairs(field_order) do fields[position] = f[name] end
homa.fields = fields

local malformed_expert = ProtoExpert.new("homa.malformed.expert", "Malformed Homa", expert.group.MALFORMED, expert.severity.ERROR)
local retransmit_expert = ProtoExpert.new("homa.retransmit.expert", "Retransmission", expert.group.SEQUENCE, expert.severity.NOTE)
local resend_expert = ProtoExpert.new("homa.resend.expert", "Asks again", expert.group.SEQUENCE, expert.severity.NOTE)
local refused_expert = ProtoExpert.new("homa.refused.expert", "Refused", expert.group.RESPONSE_CODE, expert.severity.WARN)
homa.experts = { malformed_expert, retransmit_expert, resend_expert, refused_expert }

homa.prefs.ports = Pref.range("UDP ports", tostring(wire.UDP_PORT), "Datagrams to or from these ports are Homa", 65535)

local function flag(byte, mask) return math.floor(byte / mask) % 2 == 1 end

-- What the module writes on every packet, and the variant without grants on none.
local function has_flags(tvb) return at(tvb, common.flags):uint() == wire.FLAGS and at(tvb, common.urgent):uint() == wire.URGENT end
local function is_stripped(tvb) return at(tvb, common.flags):uint() == 0 and at(tvb, common.urgent):uint() == 0 end

-- Where the data begin: after segmentation the sequence is stale, unless the field for it points there.
local function offset_of(tvb)
    local offset = at(tvb, data.seg_offset):uint()
    return offset == wire.OFFSET_IN_SEQUENCE and at(tvb, common.sequence):uint() or offset
end

-- Why the body is malformed, or nothing.
local function judge(tvb, packet)
    local kind = packet.type
    local len_min = (kind == RESEND and packet.is_stripped) and RESEND_STRIPPED_LEN or lens[kind] or COMMON_LEN
    if tvb:reported_len() < len_min then return "Truncated" end
    packet.header_len = len_min
    if kind == DATA then
        local message_length = at(tvb, data.message_length):uint()
        packet.offset = offset_of(tvb)
        packet.payload_len = tvb:reported_len() - DATA_LEN
        if message_length == 0 or packet.offset + packet.payload_len > message_length then return "Length" end
    elseif kind == GRANT and at(tvb, grant.priority):uint() >= LEVELS then
        return "Value"
    elseif kind == RESEND and not packet.is_stripped and at(tvb, resend.priority):uint() >= LEVELS then
        return "Value"
    elseif kind == ACK and at(tvb, acks.num_acks):uint() > ACKS_MAX then
        return "Value"
    elseif kind == COOKIE and (at(tvb, cookie.cookie):uint64() == UInt64(0) or at(tvb, cookie.is_demand):uint() > 1) then
        return "Value"
    end
    return nil
end

-- What bytes are: the packet, or nothing and why.
local function parse(tvb)
    if tvb:reported_len() < COMMON_LEN then return nil, "Truncated" end
    -- Ids 0 and 1 are nobody's.
    if at(tvb, common.sender_id):uint64() < UInt64(2) then return nil, "Value" end
    local packet = { type = at(tvb, common.packet_type):uint(), is_stripped = is_stripped(tvb) }
    if not types[packet.type] then return nil, "Type" end
    local reason = judge(tvb, packet)
    if reason then return nil, reason end
    return packet
end

-- Adds fields of a header, which are called as the header's, behind a prefix.
local function add_all(tree, tvb, header, names, start, prefix)
    for _, name in ipairs(names) do tree:add(f[(prefix or "") .. name], at(tvb, header[name], start)) end
end

local function add_common(tvb, tree)
    add_all(tree, tvb, common, { "sport", "dport", "sequence", "reserved", "packet_type", "doff", "flags", "window",
        "checksum", "urgent", "sender_id" })
end

-- The flags of a DATA packet; 0 from a sender that does not know them.
local function flags_of(tvb)
    local flags = at(tvb, data.flags):uint()
    return flag(flags, bits.KNOWN) and flags or 0
end

-- The tag of a request, in fields that say nothing there; nothing where there is none.
local function tag_of(tvb)
    local reserved = at(tvb, common.reserved)
    if reserved(0, 1):uint() ~= wire.TAG_MARK or at(tvb, data.seg_offset):uint() == wire.OFFSET_IN_SEQUENCE then return nil end
    return UInt64(reserved(1, 2):uint() * 2 ^ 16 + at(tvb, common.checksum):uint(), at(tvb, common.sequence):uint())
end

-- Most milliseconds since the message was first sent; nothing where the packet does not say.
local function age_ms(code)
    if code == 0 or code == 255 then return nil end
    if code < 17 then return code - 1 end
    return (8 + (code - 17) % 8) * 2 ^ (math.floor((code - 17) / 8) + 1)
end

local function deadline_us(tvb)
    local code = at(tvb, data.time_left):uint()
    if code == 0 or flags_of(tvb) == 0 then return nil end
    return (code % 4096) * 2 ^ math.floor(code / 4096)
end

local function add_data(tvb, tree)
    add_all(tree, tvb, data, { "message_length", "incoming" })
    add_all(tree, tvb, wire.Ack, { "client_id", "server_port" }, data.ack[1], "ack_")
    add_all(tree, tvb, data, { "cutoff_version", "retransmit" })
    local flags = tree:add(f.data_flags, at(tvb, data.flags))
    for _, one in ipairs({ f.known, f.incast, f.part, f.refused, f.idempotent, f.empty, f.long }) do flags:add(one, at(tvb, data.flags)) end
    add_all(tree, tvb, data, { "time_left", "seg_offset" })
end

-- What follows the header of coherent data.
local function add_message(tvb, tree, packet)
    local start, flags = DATA_LEN, flags_of(tvb)
    if flag(flags, bits.PART) and packet.offset == 0 and packet.payload_len >= PART_LEN then
        add_all(tree, tvb, part, { "key", "total_len", "offset", "kind", "reserved" }, DATA_LEN, "part_")
        start = start + PART_LEN
    elseif flag(flags, bits.REFUSED) and packet.payload_len > 0 then
        tree:add(f.reason, tvb(DATA_LEN, 1))
        start = start + 1
        tree:add_proto_expert_info(refused_expert)
    end
    if tvb:len() > start then tree:add(f.payload, tvb(start)) end
    tree:add(f.offset, packet.offset):set_generated()
    local tag = tag_of(tvb)
    if tag then tree:add(f.tag, tag):set_generated() end
    local retransmit, deadline = at(tvb, data.retransmit):uint(), deadline_us(tvb)
    local age = flags ~= 0 and age_ms(retransmit)
    if age then tree:add(f.age_ms, UInt64(age)):set_generated() end
    if deadline then tree:add(f.deadline_us, UInt64(deadline % 2 ^ 32, math.floor(deadline / 2 ^ 32))):set_generated() end
    tree:add(f.payload_len, packet.payload_len):set_generated()
    if retransmit ~= 0 then tree:add_proto_expert_info(retransmit_expert) end
end

local function cutoff(tvb, level)
    local size = cutoffs.cutoffs[2] / LEVELS
    return tvb(cutoffs.cutoffs[1] + size * level, size)
end

local function ack_start(place) return acks.acks[1] + wire.Ack.len * place end

local function add_control(tvb, tree, packet)
    local kind = packet.type
    if kind == GRANT then
        add_all(tree, tvb, grant, { "offset", "priority" }, 0, "grant_")
    elseif kind == RESEND then
        add_all(tree, tvb, resend, { "offset", "length", not packet.is_stripped and "priority" or nil }, 0, "resend_")
        tree:add_proto_expert_info(resend_expert)
    elseif kind == CUTOFFS then
        for level = 0, LEVELS - 1 do tree:add(f.cutoff, cutoff(tvb, level)):prepend_text(string.format("Level %d: ", level)) end
        tree:add(f.cutoffs_version, at(tvb, cutoffs.version))
    elseif kind == COOKIE then
        add_all(tree, tvb, cookie, { "cookie", "is_demand" }, 0, "cookie_")
    elseif kind == ACK then
        tree:add(f.num_acks, at(tvb, acks.num_acks))
        for place = 0, ACKS_MAX - 1 do add_all(tree, tvb, wire.Ack, { "client_id", "server_port" }, ack_start(place)) end
    end
    if tvb:len() > packet.header_len then tree:add(f.trailer, tvb(packet.header_len)) end
end

local function id_text(range) return range:bytes():tohex(true) end

-- A finished RPC, or a range of them: its id is odd, and the port is how many there are.
local function ack_text(tvb, start)
    local id, port = at(tvb, wire.Ack.client_id, start), at(tvb, wire.Ack.server_port, start)
    local is_range = id(id:len() - 1, 1):uint() % 2 == 1
    return id_text(id) .. (is_range and string.format("*%d", port:uint()) or "")
end

local function data_text(tvb, packet)
    local text = string.format(" at %d of %d B incoming %d", packet.offset, at(tvb, data.message_length):uint(),
        at(tvb, data.incoming):uint())
    local acknowledged = at(tvb, wire.Ack.client_id, data.ack[1])
    if acknowledged:uint64() ~= UInt64(0) then text = text .. " ack " .. ack_text(tvb, data.ack[1]) end
    if tag_of(tvb) then text = text .. " tagged" end
    if at(tvb, data.retransmit):uint() ~= 0 then text = text .. " retransmit" end
    local flags = flags_of(tvb)
    for _, name in ipairs({ "INCAST", "PART", "REFUSED", "IDEMPOTENT", "EMPTY", "LONG" }) do
        if flag(flags, bits[name]) then text = text .. " " .. name:lower() end
    end
    local deadline = deadline_us(tvb)
    if deadline then text = text .. string.format(" deadline %dus", deadline) end
    return text .. string.format(", length %d", packet.payload_len)
end

local function resend_text(tvb, packet)
    local text = " all"
    local length = at(tvb, resend.length):uint()
    if length ~= wire.RESEND_ALL then text = string.format(" %d from %d", length, at(tvb, resend.offset):uint()) end
    if packet.is_stripped then return text end
    return text .. string.format(" priority %d", at(tvb, resend.priority):uint())
end

local function body_text(tvb, packet)
    local kind, text = packet.type, ""
    if kind == DATA then return data_text(tvb, packet) end
    if kind == RESEND then return resend_text(tvb, packet) end
    if kind == GRANT then
        return string.format(" below %d priority %d", at(tvb, grant.offset):uint(), at(tvb, grant.priority):uint())
    end
    if kind == CUTOFFS then
        text = string.format(" version %d", at(tvb, cutoffs.version):uint())
        for level = 0, LEVELS - 1 do text = text .. string.format(" %d", cutoff(tvb, level):uint()) end
    elseif kind == COOKIE and at(tvb, cookie.is_demand):uint() == 0 then
        text = " renewed"
    elseif kind == ACK then
        for place = 0, at(tvb, acks.num_acks):uint() - 1 do
            text = text .. " " .. ack_text(tvb, ack_start(place))
        end
    end
    return text
end

local function summary(tvb, packet)
    local ports = string.format("%d > %d", at(tvb, common.sport):uint(), at(tvb, common.dport):uint())
    return string.format("Homa %s %s id %s", types[packet.type], ports, id_text(at(tvb, common.sender_id))) .. body_text(tvb, packet)
end

local function show_malformed(tvb, tree, reason)
    if tvb:len() >= COMMON_LEN then
        add_common(tvb, tree)
        if at(tvb, common.packet_type):uint() == DATA and tvb:len() >= DATA_LEN then add_data(tvb, tree) end
    end
    tree:add(f.malformed, tvb(), reason):set_generated()
    tree:add_proto_expert_info(malformed_expert, "Malformed Homa: " .. wire.Malformed[reason])
    return "not Homa: " .. reason
end

local function show_packet(tvb, tree, packet, is_hijacked)
    local id = at(tvb, common.sender_id)
    local is_from_client = id(id:len() - 1, 1):uint() % 2 == 0
    add_common(tvb, tree)
    tree:add(f.rpc_id, id, id:uint64() - UInt64(is_from_client and 0 or 1)):set_generated()
    tree:add(f.from_client, is_from_client):set_generated()
    if is_hijacked then tree:add(f.hijacked, true):set_generated() end
    if packet.is_stripped then tree:add(f.stripped, true):set_generated() end
    if packet.type == DATA then
        add_data(tvb, tree)
        add_message(tvb, tree, packet)
    else
        add_control(tvb, tree, packet)
    end
    return summary(tvb, packet)
end

-- Whether the capture left out a part of the header.
local function is_cut(tvb) return tvb:len() < math.min(tvb:reported_len(), PREFIX_MAX) end

local function dissect(tvb, pinfo, root, is_hijacked)
    pinfo.cols.protocol = "Homa"
    local tree = root:add(homa, tvb())
    local text
    if is_cut(tvb) then
        text = string.format("Homa cut by the capture to %d of %d B", tvb:len(), tvb:reported_len())
    else
        local packet, reason = parse(tvb)
        text = packet and show_packet(tvb, tree, packet, is_hijacked) or show_malformed(tvb, tree, reason)
    end
    tree:add(f.summary, tvb(), text):set_generated()
    pinfo.cols.info = text
    return tvb:len()
end

function homa.dissector(tvb, pinfo, root) return dissect(tvb, pinfo, root, false) end

-- On other ports: a coherent packet with the flags and the urgent pointer that the module writes.
local function heuristic(tvb, pinfo, root)
    if tvb:len() < COMMON_LEN or is_cut(tvb) or not has_flags(tvb) or not parse(tvb) then return false end
    dissect(tvb, pinfo, root, false)
    return true
end

-- Stands before TCP, and leaves to it what is its own.
local disguised = Proto("homa_tcp", "Homa in the disguise of TCP")
local tcp = Dissector.get("tcp")

function disguised.dissector(tvb, pinfo, root)
    if tvb:len() >= COMMON_LEN and has_flags(tvb) then return dissect(tvb, pinfo, root, true) end
    return tcp:call(tvb, pinfo, root)
end

local ip_protocols = DissectorTable.get("ip.proto")
ip_protocols:add(wire.IP_PROTOCOL, homa)
ip_protocols:add(wire.HIJACKED_IP_PROTOCOL, disguised)

local udp_ports = DissectorTable.get("udp.port")
local registered = homa.prefs.ports
udp_ports:add(registered, homa)

function homa.prefs_changed()
    if registered == homa.prefs.ports then return end
    udp_ports:remove(registered, homa)
    registered = homa.prefs.ports
    udp_ports:add(registered, homa)
end

homa:register_heuristic("udp", heuristic)
