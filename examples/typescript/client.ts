// Clients of an installation, and a job's events to its end.

import type { SecureContextOptions } from "node:tls";
import type { DescService } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import type { Client, Interceptor, Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { JobState } from "./gen/podium/jobs/v1/job_service_pb.js";
import type { JobService, WatchJobResponse } from "./gen/podium/jobs/v1/job_service_pb.js";

// Nobody here cancels: so Node's clients also name a connection that breaks.
const BROKEN = new Set([Code.Unavailable, Code.Canceled, Code.Aborted]);
const ENDED = new Set([JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED]);

/** How an installation is reached. */
export interface Options {
  /** The bearer token to present; none where none is asked for. */
  token?: string | undefined;
  /** Whose certificates to take, and for mutual TLS the one to show. */
  tls?: Pick<SecureContextOptions, "ca" | "cert" | "key">;
}

/**
 * The way to an installation: `grpc://host:port` is the controller (`grpcs` by TLS), `http://…` and
 * `https://…` is the console, which has the same methods as JSON.
 *
 * @throws TypeError the address is neither.
 */
export function transport(address: string, options: Options = {}): Transport {
  const { protocol } = new URL(address);
  const tokens: Interceptor = (next) => (request) => {
    if (options.token) request.header.set("authorization", `Bearer ${options.token}`);
    return next(request);
  };
  const shared = { interceptors: [tokens], nodeOptions: { ...options.tls } };
  switch (protocol) {
    case "grpc:":
    case "grpcs:":
      return createGrpcTransport({ ...shared, baseUrl: address.replace("grpc", "http") });
    case "http:":
    case "https:":
      return createConnectTransport({
        ...shared,
        baseUrl: address,
        httpVersion: "1.1",
        useBinaryFormat: false,
      });
    default:
      throw new TypeError(`got ${protocol}//; allowed are grpc://, grpcs://, http:// and https://`);
  }
}

/** A service's client, such as `connect(JobService, "grpc://127.0.0.1:50051")`. */
export function connect<S extends DescService>(
  service: S,
  address: string,
  options: Options = {},
): Client<S> {
  return createClient(service, transport(address, options));
}

/**
 * What happens to a job, from its first event to its end. A stream that breaks is asked for again
 * from where it was, after `pauseMs`.
 *
 * @throws ConnectError there is no such job, or the caller may not see it.
 */
export async function* follow(
  jobs: Client<typeof JobService>,
  jobId: string,
  pauseMs = 1000,
): AsyncGenerator<WatchJobResponse, void> {
  let afterSequence = 0n;
  for (;;) {
    try {
      for await (const update of jobs.watchJob({ jobId, afterSequence })) {
        afterSequence = update.event?.sequence ?? afterSequence;
        yield update;
      }
      const { job } = await jobs.getJob({ jobId }, { timeoutMs: 30_000 });
      // A server that stops closes the streams of jobs that go on.
      if (job && ENDED.has(job.state)) return;
    } catch (error) {
      if (!BROKEN.has(ConnectError.from(error).code)) throw error;
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }
}
