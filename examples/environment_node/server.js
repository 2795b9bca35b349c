// podium.environment.v1.EnvironmentService over the task of task.js.
"use strict";

const path = require("node:path");
const { parseArgs } = require("node:util");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");
const { NAME, DESCRIPTION, SPLITS, scenarios, Guess } = require("./task");
const { Sessions, outOfOrder, told, wrong } = require("./sessions");
const { StatusError, status } = require("./status");
const { fromStruct, toStruct } = require("./struct");

const { values: options } = parseArgs({
  options: {
    port: { type: "string", default: "50061" },
    "max-sessions": { type: "string", default: "0" },
    "resume-seconds": { type: "string", default: "60" },
    proto: { type: "string", default: path.join(__dirname, "..", "..", "proto") },
  },
});
const contract = grpc.loadPackageDefinition(
  loader.loadSync("podium/environment/v1/environment_service.proto", {
    includeDirs: [options.proto],
    keepCase: true,
    longs: Number,
    enums: String,
    defaults: true,
    oneofs: true,
  }),
).podium.environment.v1;
const sessions = new Sessions({
  sessions: Number(options["max-sessions"]),
  resume: Number(options["resume-seconds"]),
});

function describe(call, answer) {
  answer(null, {
    name: NAME,
    description: DESCRIPTION,
    splits: SPLITS,
    max_sessions: sessions.slots.count,
  });
}

function listScenarios(call, answer) {
  try {
    const { split, page_size, page_token, config } = call.request;
    new Guess(fromStruct(config));
    if (!SPLITS.includes(split)) {
      throw new StatusError(status.NOT_FOUND, `no split ${split}; there are ${SPLITS}`, {
        reason: "SPLIT_NOT_FOUND",
        metadata: { split },
      });
    }
    const everything = scenarios(split);
    const start = page_token === "" ? 0 : Number(page_token);
    if (!Number.isInteger(start) || start < 0 || start >= everything.length) {
      throw wrong("page_token", `got ${page_token}; not a token of this listing`);
    }
    const end = start + (page_size || 1000);
    answer(null, {
      scenarios: everything
        .slice(start, end)
        .map((scenario) => ({ ...scenario, data: toStruct(scenario.data) })),
      next_page_token: end < everything.length ? String(end) : "",
    });
  } catch (error) {
    answer(told(error));
  }
}

/** JSON values in place of Structs, which is how the task wants them. */
function read(request) {
  if (request.open) request.open.config = fromStruct(request.open.config);
  if (request.reset) request.reset.scenario.data = fromStruct(request.reset.scenario.data);
  return request;
}

/** The other way round. The answer itself is remembered and stays as it is. */
function written(response) {
  const credits = sessions.slots.credits;
  const fresh = { ...response, ...(credits === undefined ? {} : { credits }) };
  for (const kind of ["step", "score"]) {
    if (fresh[kind]) fresh[kind] = { ...fresh[kind], info: toStruct(fresh[kind].info ?? {}) };
  }
  return fresh;
}

function session(stream) {
  const gone = new AbortController();
  let held = null;
  let opening = false;
  let acting = null;
  let over = false;

  const lose = (error) => {
    if (over) return;
    over = true;
    gone.abort();
    held?.detach(lose);
    if (error) stream.emit("error", error);
    else stream.end();
  };

  async function open(request) {
    const [found, resumed] = await sessions.open(request.open, gone.signal);
    if (over) {
      // The client has gone while it waited; it may come again.
      found.wind();
      return;
    }
    held = found;
    held.attach(lose);
    stream.write(
      written({
        sequence: 0,
        open: {
          resumed,
          last_sequence: held.sequence,
          idle_seconds: held.idle,
          resume_seconds: sessions.limits.resume,
        },
      }),
    );
  }

  async function act(request) {
    const answer = held.submit(request);
    acting = answer;
    const response = await answer;
    if (over || acting !== answer) return;
    acting = null;
    stream.write(written(response));
    if (response.close) lose(null);
  }

  stream.on("data", (raw) => {
    if (over) return;
    const request = read(raw);
    let done;
    if (request.request === "open") {
      done = opening
        ? Promise.reject(outOfOrder("open came before", "ALREADY_OPEN"))
        : open(request);
      opening = true;
    } else if (held === null) {
      done = Promise.reject(outOfOrder(`${request.request} before open`, "NOT_OPEN"));
    } else {
      done = act(request);
    }
    done.catch((error) => lose(told(error)));
  });
  stream.on("end", async () => {
    await acting?.catch(() => {});
    lose(null);
  });
  // The session stays, and waits for another stream.
  stream.on("cancelled", () => lose(null));
  stream.on("error", () => {});
}

const server = new grpc.Server();
server.addService(contract.EnvironmentService.service, {
  Describe: describe,
  ListScenarios: listScenarios,
  Session: session,
});
server.bindAsync(
  `127.0.0.1:${options.port}`,
  grpc.ServerCredentials.createInsecure(),
  (error, port) => {
    if (error) throw error;
    console.log(`${NAME} listens on 127.0.0.1:${port}`);
  },
);
for (const signal of ["SIGTERM", "SIGINT"]) {
  process.on(signal, () => {
    server.forceShutdown();
    process.exit(0);
  });
}
