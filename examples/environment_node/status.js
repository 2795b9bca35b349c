// Errors as the contract wants them: a gRPC code, and google.rpc details where Podium reads them.
"use strict";

const { Metadata, status } = require("@grpc/grpc-js");

class StatusError extends Error {
  constructor(code, message, { reason = "", metadata = {}, violations = [] } = {}) {
    super(message);
    this.code = code;
    this.details = message;
    this.metadata = new Metadata();
    this.metadata.set("grpc-status-details-bin", encode(code, message, reason, metadata, violations));
  }
}

// The few messages of google/rpc/{status,error_details}.proto that are needed, by hand.
const varint = (number) => {
  const bytes = [];
  while (number > 127) {
    bytes.push((number & 127) | 128);
    number >>>= 7;
  }
  return Buffer.from([...bytes, number]);
};
const field = (number, value) => {
  const body = Buffer.isBuffer(value) ? value : Buffer.from(value);
  return Buffer.concat([varint((number << 3) | 2), varint(body.length), body]);
};
const any = (type, body) =>
  Buffer.concat([field(1, `type.googleapis.com/google.rpc.${type}`), field(2, body)]);

function encode(code, message, reason, metadata, violations) {
  const entries = Object.entries(metadata).map(([key, value]) =>
    field(3, Buffer.concat([field(1, key), field(2, String(value))])),
  );
  const info = Buffer.concat([field(1, reason), field(2, "podium.dev"), ...entries]);
  const details = [field(3, any("ErrorInfo", info))];
  if (violations.length > 0) {
    const bad = violations.map(({ field: path, description }) =>
      field(1, Buffer.concat([field(1, path), field(2, description)])),
    );
    details.push(field(3, any("BadRequest", Buffer.concat(bad))));
  }
  return Buffer.concat([Buffer.from([8]), varint(code), field(2, message), ...details]);
}

module.exports = { StatusError, status };
