/**
 * A small client for the tidemark HTTP interface, for kiosks and web forms.
 *
 * No dependencies beyond `fetch`. Every call either resolves with data or rejects with a
 * `TidemarkError` whose `code` is one of the TMxxxx codes, or "network" / "timeout".
 */

/** Milliseconds to wait for an answer. Longer than the service's own gauge calls can take. */
export const DEFAULT_TIMEOUT_MS = 11_000;

/** Tries in all for requests that are safe to repeat. */
export const READ_TRIES = 2;

export type Kind = "HW" | "LW";

export interface Extreme {
  kind: Kind;
  at: string;
  height_m: number;
  raw_height_m: number;
}

export interface TideDay {
  station: string;
  day: string;
  age: "springs" | "neaps" | "";
  grade: "A" | "B";
  extremes: Extreme[];
}

export interface Window {
  opens: string;
  closes: string;
}

export type State =
  | "held"
  | "confirmed"
  | "arrived"
  | "departed"
  | "cancelled"
  | "expired"
  | "no_show";

export interface Reservation {
  id: string;
  vessel: string;
  berth: string;
  arrives: string;
  departs: string;
  state: State;
  priority: string;
  version: number;
  held_until: string | null;
  price_pence: number;
  notes: string;
}

export interface HoldRequest {
  vessel: string;
  arrives: Date;
  departs: Date;
  priority?: "lifeboat" | "pilot" | "fishing" | "commercial" | "visitor";
  power_amps?: number;
  notes?: string;
}

export class TidemarkError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly status: number = 0,
    readonly detail: Record<string, unknown> = {},
  ) {
    super(message);
    this.name = "TidemarkError";
  }

  /** Whether asking again later, unchanged, could succeed. */
  get temporary(): boolean {
    return ["network", "timeout", "TM1102", "TM5001", "TM5002", "TM5004"].includes(this.code);
  }
}

export interface ClientOptions {
  baseUrl: string;
  token?: string;
  timeoutMs?: number;
  fetch?: typeof fetch;
}

export class TidemarkClient {
  private readonly baseUrl: string;
  private readonly token?: string;
  private readonly timeoutMs: number;
  private readonly fetch: typeof fetch;

  constructor(options: ClientOptions) {
    this.baseUrl = options.baseUrl.replace(/\/+$/, "");
    this.token = options.token;
    this.timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    this.fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
  }

  async tides(station: string, from: Date, days = 1): Promise<TideDay[]> {
    const day = from.toISOString().slice(0, 10);
    const path = `/v1/stations/${encodeURIComponent(station)}/tides?from=${day}&days=${days}`;
    const body = await this.read<{ days: TideDay[] }>(path);
    return body.days;
  }

  async windows(station: string, from: Date, to: Date, height: string): Promise<Window[]> {
    const query = new URLSearchParams({ from: instant(from), to: instant(to), height });
    const path = `/v1/stations/${encodeURIComponent(station)}/windows?${query}`;
    const body = await this.read<{ windows: Window[] }>(path);
    return body.windows;
  }

  reservation(id: string): Promise<Reservation> {
    return this.read<Reservation>(`/v1/reservations/${encodeURIComponent(id)}`);
  }

  /** Every reservation, a page at a time, in order of id. */
  async *reservations(pageSize = 100): AsyncGenerator<Reservation> {
    let after = "";
    for (;;) {
      const query = new URLSearchParams({ limit: String(pageSize), after });
      const page = await this.read<{ reservations: Reservation[]; next?: string }>(
        `/v1/reservations?${query}`,
      );
      yield* page.reservations;
      if (page.next === undefined) {
        return;
      }
      after = page.next;
    }
  }

  /**
   * Hold a berth. Not repeated on failure: a second hold would take a second berth. After a
   * timeout, list the reservations before trying again.
   */
  hold(request: HoldRequest): Promise<Reservation> {
    const body = {
      ...request,
      arrives: instant(request.arrives),
      departs: instant(request.departs),
    };
    return this.send<Reservation>("POST", "/v1/holds", body);
  }

  confirm(id: string): Promise<Reservation> {
    return this.send<Reservation>("POST", `/v1/holds/${encodeURIComponent(id)}/confirm`);
  }

  cancel(id: string): Promise<Reservation & { owed_pence: number }> {
    return this.send("POST", `/v1/reservations/${encodeURIComponent(id)}/cancel`);
  }

  private async read<T>(path: string): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.send<T>("GET", path);
      } catch (problem) {
        const again = problem instanceof TidemarkError && problem.temporary;
        if (!again || attempt >= READ_TRIES) {
          throw problem;
        }
        await pause(300 + Math.random() * 700);
      }
    }
  }

  private async send<T>(method: string, path: string, body?: unknown): Promise<T> {
    const headers: Record<string, string> = { Accept: "application/json" };
    if (this.token) {
      headers.Authorization = `Bearer ${this.token}`;
    }
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
    }
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(), this.timeoutMs);
    let answer: Response;
    try {
      answer = await this.fetch(this.baseUrl + path, {
        method,
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: controller.signal,
      });
    } catch (problem) {
      if (controller.signal.aborted) {
        throw new TidemarkError("timeout", `no answer in ${this.timeoutMs} ms`);
      }
      throw new TidemarkError("network", String(problem));
    } finally {
      clearTimeout(timer);
    }
    if (answer.status === 204) {
      return undefined as T;
    }
    const parsed = await answer.json().catch(() => ({}));
    if (!answer.ok) {
      throw new TidemarkError(
        parsed.code ?? "TM0000",
        parsed.message ?? answer.statusText,
        answer.status,
        parsed.detail,
      );
    }
    return parsed as T;
  }
}

/** The service refuses fractions of a second nowhere, but prints none: drop them. */
function instant(when: Date): string {
  return when.toISOString().replace(/\.\d{3}Z$/, "Z");
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
