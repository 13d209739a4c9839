-- Homa as docs/protocol/homa.md lays it down: the packets of the Linux module and tailcut's flags, as IP protocol 146, inside UDP
-- and in the disguise of TCP.
--
-- wireshark -X lua_script:tools/wireshark/homa.lua capture.pcap, or copy the file to Wireshark's personal Lua plugins.
--
-- `parse` makes the decisions of Packet::parse in crates/wire in the same order and gives the same reasons, and `summary`
-- the line of its Display; tools/wireshark/check.sh holds both to it. Messages are not reassembled.

local homa = Proto("homa", "Homa messages")

local COMMON_LEN, DATA_LEN, GRANT_LEN, RESEND_LEN, CUTOFFS_LEN, ACK_LEN = 28, 56, 33, 37, 62, 80
-- The variant without grants has no priority in its RESEND.
local RESEND_STRIPPED_LEN = 36
local PART_LEN = 20
-- The longest header: what a capture must hold of a packet for its fields to be read.
local PREFIX_MAX = ACK_LEN
local LEVELS, ACKS_MAX = 8, 5
local FLAGS, URGENT = 0x06, 0xb97d
local ALL = 0xffffffff
local IP_PROTOCOL, TCP_PROTOCOL = 146, 6

local DATA, GRANT, RESEND, RPC_UNKNOWN, BUSY, CUTOFFS, FREEZE, NEED_ACK, ACK = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18
local KNOWN, PART, REFUSED = 0x80, 0x02, 0x04

local types = {
    [DATA] = "data", [GRANT] = "grant", [RESEND] = "resend", [RPC_UNKNOWN] = "unknown", [BUSY] = "busy",
    [CUTOFFS] = "cutoffs", [FREEZE] = "freeze", [NEED_ACK] = "need-ack", [ACK] = "ack",
}
local lens = { [DATA] = DATA_LEN, [GRANT] = GRANT_LEN, [RESEND] = RESEND_LEN, [CUTOFFS] = CUTOFFS_LEN, [ACK] = ACK_LEN }
local kinds = { [0] = "part of a request", [1] = "fetch", [2] = "part of a reply" }
local drop_reasons = {
    [0] = "Unspecified", [1] = "Overload", [2] = "TooLarge", [3] = "TooOld", [4] = "Expired", [5] = "NoServer",
    [6] = "Application", [7] = "Uncertain", [8] = "Unvalidated", [9] = "Panicked", [10] = "Stopping",
    [11] = "Unanswered",
}
local malformed_texts = {
    Truncated = "shorter than its header",
    Type = "an unknown type",
    Length = "a message of no bytes, or data outside of it",
    Value = "an id, a count of acknowledgements or a priority that cannot be",
}

-- In the order of the header; the generated ones last.
local f = {
    sport = ProtoField.uint16("homa.sport", "Source port", base.DEC),
    dport = ProtoField.uint16("homa.dport", "Destination port", base.DEC),
    sequence = ProtoField.uint32("homa.sequence", "Sequence", base.DEC),
    reserved = ProtoField.bytes("homa.reserved", "Reserved"),
    type = ProtoField.uint8("homa.type", "Type", base.HEX, types),
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
    known = ProtoField.bool("homa.data.flags.known", "Knows flags", 8, nil, KNOWN),
    incast = ProtoField.bool("homa.data.flags.incast", "Incast", 8, nil, 0x01),
    part = ProtoField.bool("homa.data.flags.part", "Part", 8, nil, PART),
    refused = ProtoField.bool("homa.data.flags.refused", "Refused", 8, nil, REFUSED),
    idempotent = ProtoField.bool("homa.data.flags.idempotent", "Idempotent", 8, nil, 0x08),
    empty = ProtoField.bool("homa.data.flags.empty", "Empty", 8, nil, 0x10),
    time_left = ProtoField.uint16("homa.data.time_left", "Time left", base.HEX),
    seg_offset = ProtoField.uint32("homa.data.seg_offset", "Segment offset", base.HEX),

    part_key = ProtoField.uint64("homa.part.key", "Key", base.HEX),
    part_total_len = ProtoField.uint32("homa.part.total_len", "Total length", base.DEC),
    part_offset = ProtoField.uint32("homa.part.offset", "Part offset", base.DEC),
    part_kind = ProtoField.uint8("homa.part.kind", "Part kind", base.DEC, kinds),
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

    reason = ProtoField.uint8("homa.refused.reason", "Reason", base.DEC, drop_reasons),
    payload = ProtoField.bytes("homa.payload", "Payload"),
    trailer = ProtoField.bytes("homa.trailer", "Ignored bytes"),

    rpc_id = ProtoField.uint64("homa.rpc_id", "RPC, as its client numbers it", base.HEX),
    from_client = ProtoField.bool("homa.from_client", "From the client"),
    hijacked = ProtoField.bool("homa.hijacked", "In the disguise of TCP"),
    stripped = ProtoField.bool("homa.stripped", "From the variant without grants"),
    offset = ProtoField.uint32("homa.data.offset", "Offset", base.DEC),
    age_ms = ProtoField.uint64("homa.data.age_ms", "Age at most (ms)", base.DEC),
    deadline_us = ProtoField.uint64("homa.data.deadline_us", "Deadline (us)", base.DEC),
    payload_len = ProtoField.uint32("homa.payload_len", "Payload length", base.DEC),
    malformed = ProtoField.string("homa.malformed", "Malformed"),
    summary = ProtoField.string("homa.summary", "Summary"),
}

local field_order = {
    "sport", "dport", "sequence", "reserved", "type", "doff", "flags", "window", "checksum", "urgent", "sender_id",
    "message_length", "incoming", "ack_client_id", "ack_server_port", "cutoff_version", "retransmit",
    "data_flags", "known", "incast", "part", "refused", "idempotent", "empty", "time_left", "seg_offset",
    "part_key", "part_total_len", "part_offset", "part_kind", "part_reserved",
    "grant_offset", "grant_priority", "resend_offset", "resend_length", "resend_priority", "cutoff", "cutoffs_version",
    "num_acks", "client_id", "server_port", "reason", "payload", "trailer",
    "rpc_id", "from_client", "hijacked", "stripped", "offset", "age_ms", "deadline_us", "payload_len", "malformed", "summary",
}
local fields = {}
for position, name in ipairs(field_order) do fields[position] = f[name] end
homa.fields = fields

local malformed_expert = ProtoExpert.new("homa.malformed.expert", "Malformed Homa", expert.group.MALFORMED, expert.severity.ERROR)
local retransmit_expert = ProtoExpert.new("homa.retransmit.expert", "Retransmission", expert.group.SEQUENCE, expert.severity.NOTE)
local resend_expert = ProtoExpert.new("homa.resend.expert", "Asks again", expert.group.SEQUENCE, expert.severity.NOTE)
local refused_expert = ProtoExpert.new("homa.refused.expert", "Refused", expert.group.RESPONSE_CODE, expert.severity.WARN)
homa.experts = { malformed_expert, retransmit_expert, resend_expert, refused_expert }

homa.prefs.ports = Pref.range("UDP ports", "50146", "Datagrams to or from these ports are Homa", 65535)

local function flag(byte, mask) return math.floor(byte / mask) % 2 == 1 end

-- What the module writes on every packet, and the variant without grants on none.
local function has_flags(tvb) return tvb(13, 1):uint() == FLAGS and tvb(18, 2):uint() == URGENT end
local function is_stripped(tvb) return tvb(13, 1):uint() == 0 and tvb(18, 2):uint() == 0 end

-- Where the data begin: after segmentation the sequence is stale, unless the field for it points there.
local function offset_of(tvb)
    local offset = tvb(52, 4):uint()
    return offset == ALL and tvb(4, 4):uint() or offset
end

-- Why the body is malformed, or nothing.
local function judge(tvb, packet)
    local kind = packet.type
    local len_min = (kind == RESEND and packet.is_stripped) and RESEND_STRIPPED_LEN or lens[kind] or COMMON_LEN
    if tvb:reported_len() < len_min then return "Truncated" end
    packet.header_len = len_min
    if kind == DATA then
        local message_length = tvb(28, 4):uint()
        packet.offset = offset_of(tvb)
        packet.payload_len = tvb:reported_len() - DATA_LEN
        if message_length == 0 or packet.offset + packet.payload_len > message_length then return "Length" end
    elseif kind == GRANT and tvb(32, 1):uint() >= LEVELS then
        return "Value"
    elseif kind == RESEND and not packet.is_stripped and tvb(36, 1):uint() >= LEVELS then
        return "Value"
    elseif kind == ACK and tvb(28, 2):uint() > ACKS_MAX then
        return "Value"
    end
    return nil
end

-- What bytes are: the packet, or nothing and why.
local function parse(tvb)
    if tvb:reported_len() < COMMON_LEN then return nil, "Truncated" end
    -- Ids 0 and 1 are nobody's.
    if tvb(20, 4):uint() == 0 and tvb(24, 4):uint() < 2 then return nil, "Value" end
    local packet = { type = tvb(11, 1):uint(), is_stripped = is_stripped(tvb) }
    if not types[packet.type] then return nil, "Type" end
    local reason = judge(tvb, packet)
    if reason then return nil, reason end
    return packet
end

local function add_common(tvb, tree)
    tree:add(f.sport, tvb(0, 2))
    tree:add(f.dport, tvb(2, 2))
    tree:add(f.sequence, tvb(4, 4))
    tree:add(f.reserved, tvb(8, 3))
    tree:add(f.type, tvb(11, 1))
    tree:add(f.doff, tvb(12, 1))
    tree:add(f.flags, tvb(13, 1))
    tree:add(f.window, tvb(14, 2))
    tree:add(f.checksum, tvb(16, 2))
    tree:add(f.urgent, tvb(18, 2))
    tree:add(f.sender_id, tvb(20, 8))
end

-- The flags of a DATA packet; 0 from a sender that does not know them.
local function flags_of(tvb)
    local flags = tvb(49, 1):uint()
    return flag(flags, KNOWN) and flags or 0
end

-- Most milliseconds since the message was first sent; nothing where the packet does not say.
local function age_ms(code)
    if code == 0 or code == 255 then return nil end
    if code < 17 then return code - 1 end
    return (8 + (code - 17) % 8) * 2 ^ (math.floor((code - 17) / 8) + 1)
end

local function deadline_us(tvb)
    local code = tvb(50, 2):uint()
    if code == 0 or flags_of(tvb) == 0 then return nil end
    return (code % 4096) * 2 ^ math.floor(code / 4096)
end

local function add_data(tvb, tree)
    tree:add(f.message_length, tvb(28, 4))
    tree:add(f.incoming, tvb(32, 4))
    tree:add(f.ack_client_id, tvb(36, 8))
    tree:add(f.ack_server_port, tvb(44, 2))
    tree:add(f.cutoff_version, tvb(46, 2))
    tree:add(f.retransmit, tvb(48, 1))
    local flags = tree:add(f.data_flags, tvb(49, 1))
    for _, one in ipairs({ f.known, f.incast, f.part, f.refused, f.idempotent, f.empty }) do flags:add(one, tvb(49, 1)) end
    tree:add(f.time_left, tvb(50, 2))
    tree:add(f.seg_offset, tvb(52, 4))
end

local function add_part(tvb, tree)
    tree:add(f.part_key, tvb(56, 8))
    tree:add(f.part_total_len, tvb(64, 4))
    tree:add(f.part_offset, tvb(68, 4))
    tree:add(f.part_kind, tvb(72, 1))
    tree:add(f.part_reserved, tvb(73, 3))
end

-- What follows the header of coherent data.
local function add_message(tvb, tree, packet)
    local start, flags = DATA_LEN, flags_of(tvb)
    if flag(flags, PART) and packet.offset == 0 and packet.payload_len >= PART_LEN then
        add_part(tvb, tree)
        start = start + PART_LEN
    elseif flag(flags, REFUSED) and packet.payload_len > 0 then
        tree:add(f.reason, tvb(DATA_LEN, 1))
        start = start + 1
        tree:add_proto_expert_info(refused_expert)
    end
    if tvb:len() > start then tree:add(f.payload, tvb(start)) end
    tree:add(f.offset, packet.offset):set_generated()
    local retransmit, deadline = tvb(48, 1):uint(), deadline_us(tvb)
    local age = flags ~= 0 and age_ms(retransmit)
    if age then tree:add(f.age_ms, UInt64(age)):set_generated() end
    if deadline then tree:add(f.deadline_us, UInt64(deadline % 2 ^ 32, math.floor(deadline / 2 ^ 32))):set_generated() end
    tree:add(f.payload_len, packet.payload_len):set_generated()
    if retransmit ~= 0 then tree:add_proto_expert_info(retransmit_expert) end
end

local function add_control(tvb, tree, packet)
    local kind = packet.type
    if kind == GRANT then
        tree:add(f.grant_offset, tvb(28, 4))
        tree:add(f.grant_priority, tvb(32, 1))
    elseif kind == RESEND then
        tree:add(f.resend_offset, tvb(28, 4))
        tree:add(f.resend_length, tvb(32, 4))
        if not packet.is_stripped then tree:add(f.resend_priority, tvb(36, 1)) end
        tree:add_proto_expert_info(resend_expert)
    elseif kind == CUTOFFS then
        for level = 0, LEVELS - 1 do tree:add(f.cutoff, tvb(28 + 4 * level, 4)):prepend_text(string.format("Level %d: ", level)) end
        tree:add(f.cutoffs_version, tvb(60, 2))
    elseif kind == ACK then
        tree:add(f.num_acks, tvb(28, 2))
        for place = 0, ACKS_MAX - 1 do
            tree:add(f.client_id, tvb(30 + 10 * place, 8))
            tree:add(f.server_port, tvb(38 + 10 * place, 2))
        end
    end
    if tvb:len() > packet.header_len then tree:add(f.trailer, tvb(packet.header_len)) end
end

local function id_text(range) return range:bytes():tohex(true) end

local function data_text(tvb, packet)
    local text = string.format(" at %d of %d B incoming %d", packet.offset, tvb(28, 4):uint(), tvb(32, 4):uint())
    if tvb(36, 4):uint() ~= 0 or tvb(40, 4):uint() ~= 0 then text = text .. " ack " .. id_text(tvb(36, 8)) end
    if tvb(48, 1):uint() ~= 0 then text = text .. " retransmit" end
    local flags = flags_of(tvb)
    local names = { { 0x01, " incast" }, { PART, " part" }, { REFUSED, " refused" }, { 0x08, " idempotent" }, { 0x10, " empty" } }
    for _, name in ipairs(names) do
        if flag(flags, name[1]) then text = text .. name[2] end
    end
    local deadline = deadline_us(tvb)
    if deadline then text = text .. string.format(" deadline %dus", deadline) end
    return text .. string.format(", length %d", packet.payload_len)
end

local function resend_text(tvb, packet)
    local text = " all"
    if tvb(32, 4):uint() ~= ALL then text = string.format(" %d from %d", tvb(32, 4):uint(), tvb(28, 4):uint()) end
    if packet.is_stripped then return text end
    return text .. string.format(" priority %d", tvb(36, 1):uint())
end

local function body_text(tvb, packet)
    local kind, text = packet.type, ""
    if kind == DATA then return data_text(tvb, packet) end
    if kind == RESEND then return resend_text(tvb, packet) end
    if kind == GRANT then return string.format(" below %d priority %d", tvb(28, 4):uint(), tvb(32, 1):uint()) end
    if kind == CUTOFFS then
        text = string.format(" version %d", tvb(60, 2):uint())
        for level = 0, LEVELS - 1 do text = text .. string.format(" %d", tvb(28 + 4 * level, 4):uint()) end
    elseif kind == ACK then
        for place = 0, tvb(28, 2):uint() - 1 do text = text .. " " .. id_text(tvb(30 + 10 * place, 8)) end
    end
    return text
end

local function summary(tvb, packet)
    local ports = string.format("%d > %d", tvb(0, 2):uint(), tvb(2, 2):uint())
    return string.format("Homa %s %s id %s", types[packet.type], ports, id_text(tvb(20, 8))) .. body_text(tvb, packet)
end

local function show_malformed(tvb, tree, reason)
    if tvb:len() >= COMMON_LEN then
        add_common(tvb, tree)
        if tvb(11, 1):uint() == DATA and tvb:len() >= DATA_LEN then add_data(tvb, tree) end
    end
    tree:add(f.malformed, tvb(), reason):set_generated()
    tree:add_proto_expert_info(malformed_expert, "Malformed Homa: " .. malformed_texts[reason])
    return "not Homa: " .. reason
end

local function show_packet(tvb, tree, packet, is_hijacked)
    local is_from_client = tvb(27, 1):uint() % 2 == 0
    add_common(tvb, tree)
    tree:add(f.rpc_id, tvb(20, 8), UInt64(tvb(24, 4):uint() - (is_from_client and 0 or 1), tvb(20, 4):uint())):set_generated()
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
ip_protocols:add(IP_PROTOCOL, homa)
ip_protocols:add(TCP_PROTOCOL, disguised)

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
